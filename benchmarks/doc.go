// Package benchmarks compares worker pools with each other. README.md has the figures.
package benchmarks
