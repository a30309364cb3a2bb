"""The `dispatch` processor: posts the events of a topic to one HTTP subscriber."""
