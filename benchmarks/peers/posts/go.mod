module inbound/benchmarks/peers/posts

go 1.21
