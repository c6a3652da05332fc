package fairq_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The complete programs in the docs build. If they have an "Output:" they print it. Their tests
// pass.
func TestDocs(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds them one by one: make docs")
	}
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	ran := 0
	for _, page := range append(pages, "README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for i, block := range strings.Split(string(text), "```go\n")[1:] {
			source, _, _ := strings.Cut(block, "```")
			if !strings.HasPrefix(source, "package main\n") {
				continue // a piece
			}
			_, output, runs := strings.Cut(source, "\t// Output:\n")
			verb, file := "vet", "main.go"
			switch {
			case strings.Contains(source, "\nfunc Test"):
				verb, file = "test", "main_test.go"
			case runs:
				verb = "run"
				ran++
			}
			t.Run(fmt.Sprint(page, " ", i), func(t *testing.T) {
				name := filepath.Join(t.TempDir(), file)
				require.NoError(t, os.WriteFile(name, []byte(source), 0o600))
				command := exec.CommandContext(t.Context(), "go", verb, name)
				if strings.Contains(source, "/store/") {
					command.Dir = "examples/durable" // a module that has the stores
				}
				var out, errOut bytes.Buffer
				command.Stdout, command.Stderr = &out, &errOut
				require.NoError(t, command.Run(), "%s%s", &out, &errOut)
				if verb == "run" {
					want := strings.ReplaceAll(strings.TrimSuffix(output, "}\n"), "\t// ", "")
					require.Equal(t, want, out.String())
				}
			})
		}
	}
	require.GreaterOrEqual(t, ran, 2)
}
