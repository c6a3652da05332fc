package main

import (
	"encoding/xml"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPicture(t *testing.T) {
	drawn := string(draw())
	committed, err := os.ReadFile("../../../docs/states.svg")
	require.NoError(t, err)
	if drawn != strings.ReplaceAll(string(committed), "\r\n", "\n") {
		t.Fatal("docs/states.svg is stale: go run ./internal/diagrams/states > docs/states.svg")
	}
	for d := xml.NewDecoder(strings.NewReader(drawn)); err == nil; {
		_, err = d.Token()
	}
	require.ErrorIs(t, err, io.EOF, "it is not XML")
}
