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
	committed, err := os.ReadFile("../../../docs/rounds.svg")
	require.NoError(t, err)
	if drawn != strings.ReplaceAll(string(committed), "\r\n", "\n") {
		t.Fatal("docs/rounds.svg is stale: go run ./internal/diagrams/rounds > docs/rounds.svg")
	}
	for d := xml.NewDecoder(strings.NewReader(drawn)); err == nil; {
		_, err = d.Token()
	}
	require.ErrorIs(t, err, io.EOF, "it is not XML")
}

func TestRounds(t *testing.T) {
	var rounds []string
	for _, round := range split(serve(arrive())) {
		keys := ""
		for _, it := range round {
			keys += string(it.key)
		}
		rounds = append(rounds, keys)
	}
	require.Equal(t, []string{"ACB", "AB", "A", "A", "A", "A"}, rounds)
}
