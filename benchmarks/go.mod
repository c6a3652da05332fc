module github.com/fairq/fairq/benchmarks

go 1.26.0

require (
	github.com/alitto/pond/v2 v2.7.1
	github.com/fairq/fairq v0.1.0
	github.com/gammazero/workerpool v1.3.0
	github.com/koykov/queue v1.1.6
	github.com/panjf2000/ants/v2 v2.12.1
	github.com/sourcegraph/conc v0.3.0
	github.com/stretchr/testify v1.12.1
	golang.org/x/sync v0.24.0
)

require (
	github.com/gammazero/deque v1.2.2 // indirect
	github.com/koykov/bitset v1.0.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)

replace github.com/fairq/fairq => ../
