package fairq_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// size is the number of exported names in a package, and the number of its lines with tests.
type size struct{ exported, lines int }

// TestSize compares each package with size.txt. A change that needs more raises a number there,
// and its commit says why. FAIRQ_WRITE_SIZE=1 writes the file.
func TestSize(t *testing.T) {
	const file = "size.txt"
	is := map[string]size{}
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || len(path) > 1 && d.Name()[0] == '.'):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		s := is[filepath.ToSlash(filepath.Dir(path))]
		s.lines += bytes.Count(text, []byte("\n"))
		if !strings.HasSuffix(path, "_test.go") {
			parsed, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			s.exported += exported(parsed)
		}
		is[filepath.ToSlash(filepath.Dir(path))] = s
		return nil
	}))
	all := size{}
	for _, s := range is {
		all.exported += s.exported
		all.lines += s.lines
	}
	is["all"] = all
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(is)) {
		fmt.Fprintf(&b, "%-34s %4d %6d\n", name, is[name].exported, is[name].lines)
	}
	if os.Getenv("FAIRQ_WRITE_SIZE") != "" {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o600))
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	may := map[string]size{}
	for line := range strings.Lines(string(text)) {
		var name string
		var s size
		_, err := fmt.Sscan(line, &name, &s.exported, &s.lines)
		require.NoError(t, err, line)
		may[name] = s
	}
	for name, s := range is {
		require.LessOrEqual(t, s.exported, may[name].exported, "exported names of %s", name)
		require.LessOrEqual(t, s.lines, may[name].lines, "lines of %s", name)
	}
}

// exported counts the exported names that a file declares: constants, variables, functions, types
// with their fields and methods.
func exported(f *ast.File) (n int) {
	if f.Name.Name == "main" {
		return 0
	}
	ast.Inspect(f, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			if node.Name.IsExported() && (node.Recv == nil || isExported(node.Recv.List[0].Type)) {
				n++
			}
			return false
		case *ast.TypeSpec:
			if node.Name.IsExported() {
				n++
			}
			return node.Name.IsExported()
		case *ast.ValueSpec:
			n += countExported(node.Names)
			return false
		case *ast.Field:
			n += countExported(node.Names)
		}
		return true
	})
	return n
}

func countExported(names []*ast.Ident) (n int) {
	for _, name := range names {
		if name.IsExported() {
			n++
		}
	}
	return n
}

func isExported(receiver ast.Expr) bool {
	for {
		switch x := receiver.(type) {
		case *ast.StarExpr:
			receiver = x.X
		case *ast.IndexExpr:
			receiver = x.X
		case *ast.IndexListExpr:
			receiver = x.X
		default:
			return receiver.(*ast.Ident).IsExported()
		}
	}
}
