module sink

go 1.26.0
