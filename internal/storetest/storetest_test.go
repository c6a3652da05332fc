package storetest

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestQuotes checks that what cases say must be true is said by package task.
func TestQuotes(t *testing.T) {
	plain := func(s string) string {
		return strings.Join(strings.Fields(strings.NewReplacer("[", "", "]", "").Replace(s)), " ")
	}
	files, err := filepath.Glob("../../task/*.go")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../driver/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var docs strings.Builder
	for _, name := range append(files, more...) {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range file.Comments {
			docs.WriteString(c.Text() + "\n")
		}
	}
	all := plain(docs.String())
	for _, theme := range themes {
		names := map[string]bool{}
		for _, c := range theme.cases {
			for why := range strings.SplitSeq(c.why, " ... ") {
				if !strings.Contains(all, plain(why)) {
					t.Errorf("%s/%s: package task does not say %q", theme.name, c.name, why)
				}
			}
			if names[c.name] {
				t.Errorf("there are two cases %s/%s", theme.name, c.name)
			}
			names[c.name] = true
		}
	}
}
