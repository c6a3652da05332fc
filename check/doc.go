// Package check holds tests of fairq that need more than its own module does.
package check
