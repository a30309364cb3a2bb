"""Dead letters: what they say, which are chosen, and what is done with them. `docs/dead-letters.md` is the manual."""
