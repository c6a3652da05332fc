// Command english finds what CONTRIBUTING.md asks writers to avoid, in comments and in Markdown:
//
//	cd tools && go run ./english ..
//
// A hit is accepted if the text around it contains a line of accepted.txt.
package main

import (
	_ "embed"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// avoid maps patterns to what to write instead. A space matches line ends too.
var avoid = map[string]string{
	`tells? whether`: "reports whether",
	`tells|told|tell(?:ing)? ` +
		`(?:it|them|how|what|which|that|who)`: "returns, reports, says",
	`what (?:is|was|are|were|has|have|had|comes|goes|stays|waits|leaves|fails|runs|they ` +
		`have|it (?:is|was|has)) `: "a noun",
	`(?:^|[.:;,(] |\b(?:of|by|to|for|and|or|but|from|than|with|as) )whom? |who\w*ever`: "a noun",
	`(?:those|one) (?:that|who|of which)|that of (?:those|the one)`:                    "a noun",
	`of (?:which|whom)`: "two sentences",
	`, for (?:it|they|there|nobody|nothing|these|those|who|what|its|he|no|else) `: "because",
	`also (?:if|where|when|while)`:                       "even",
	`in the (?:mean|middle|median)`:                      "on average, median",
	`dear(?:er|est)?\b`:                                  "expensive",
	`so many`:                                            "n, or a number",
	`by now|meanwhile|nevertheless|for ever\b|anew`:      "nothing, or again",
	`is (?:for|there) to|sees? to it|has (?:\w+ )?to be`: "an active verb",
}

var (
	//go:embed accepted.txt
	acceptedList string

	codeOfPage = regexp.MustCompile("(?s)```.*?```|`[^`]*`")
	marker     = regexp.MustCompile(`(?m)^\s*//`)
	notNewline = regexp.MustCompile(`[^\n]`)
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: english FOLDER")
	}
	bad, used, rules := false, map[string]bool{}, map[*regexp.Regexp]string{}
	accepted := strings.Split(strings.TrimSpace(acceptedList), "\n")
	for rule, better := range avoid {
		rule = strings.ReplaceAll(rule, " ", `\s+`)
		rules[regexp.MustCompile(`(?i)(?:\b|^)(?:`+rule+`)`)] = better
	}
	err := filepath.WalkDir(os.Args[1], func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git") {
			return fs.SkipDir
		}
		text := ""
		switch {
		case err != nil:
		case strings.HasSuffix(path, ".md"):
			var page []byte
			page, err = os.ReadFile(path)
			text = codeOfPage.ReplaceAllStringFunc(string(page), blank)
		case strings.HasSuffix(path, ".go"):
			text, err = comments(path)
		}
		for rule, better := range rules {
			for _, at := range rule.FindAllStringIndex(text, -1) {
				around := strings.Join(strings.Fields(text[max(0, at[0]-80):min(len(text), at[1]+80)]), " ")
				if i := slices.IndexFunc(accepted,
					func(s string) bool { return s != "" && strings.Contains(around, s) }); i >= 0 {
					used[accepted[i]] = true
					continue
				}
				bad = true
				log.Printf("%s:%d: %q: write %s", path, 1+strings.Count(text[:at[0]], "\n"),
					text[at[0]:at[1]], better)
			}
		}
		return err
	})
	if err != nil {
		log.Fatal("error: ", err)
	}
	for _, line := range accepted {
		if !used[line] && line != "" {
			bad = true
			log.Printf("accepted.txt has %q, and nothing needs that", line)
		}
	}
	if bad {
		os.Exit(1)
	}
}

func blank(s string) string { return notNewline.ReplaceAllString(s, " ") }

// comments returns the comments of a file, on the lines where they are.
func comments(path string) (string, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source,
		parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	text := ""
	for _, group := range file.Comments {
		from, to := files.Position(group.Pos()), files.Position(group.End())
		text += strings.Repeat("\n", from.Line-1-strings.Count(text, "\n"))
		text += marker.ReplaceAllStringFunc(string(source[from.Offset:to.Offset]), blank) + "."
	}
	return text, nil
}
