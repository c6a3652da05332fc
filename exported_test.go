package fairq_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxExported is how many names the public packages of all modules may export together. It only
// falls.
const maxExported = 799

// TestExported counts exported names: constants, variables, functions, types with their fields and
// methods. Nobody outside imports internal packages, commands and tests.
func TestExported(t *testing.T) {
	private := []string{"internal", "testdata", "examples", "benchmarks", "tools", "browsertest"}
	sum := 0
	byPackage := map[string]int{}
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(private, d.Name()) || len(path) > 1 && d.Name()[0] == '.'):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		byPackage[filepath.Dir(path)] += exported(f)
		sum += exported(f)
		return nil
	}))
	require.LessOrEqual(t, sum, maxExported, "exported names: %v", byPackage)
}

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
