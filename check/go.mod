module github.com/fairq/fairq/check

go 1.26.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/fairq/fairq v0.1.0
	github.com/stretchr/testify v1.12.1
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect

replace github.com/fairq/fairq => ../
