package fairq_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The complete programs in the docs build.
func TestDocs(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds them one by one: make docs")
	}
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	programs := 0
	for _, page := range append(pages, "README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for i, block := range strings.Split(string(text), "```go\n")[1:] {
			source, _, _ := strings.Cut(block, "```")
			if !strings.HasPrefix(source, "package main\n") || strings.Contains(source, "/store/") {
				continue // a piece, or one that needs another module
			}
			programs++
			t.Run(fmt.Sprint(page, " ", i), func(t *testing.T) {
				name := filepath.Join(t.TempDir(), "main.go")
				require.NoError(t, os.WriteFile(name, []byte(source), 0o600))
				out, err := exec.CommandContext(t.Context(), "go", "vet", name).CombinedOutput()
				require.NoError(t, err, "%s", out)
			})
		}
	}
	require.GreaterOrEqual(t, programs, 2)
}
