// Systems checks that every module, with its tests, can be built on other systems than this one:
//
//	go run ./systems windows/386 darwin/arm64  # in tools
//
// It checks types, and reads only the declarations of imported modules. Go vet would first compile
// these for each system, which takes minutes the first time.
package main

import (
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("systems: ")
	if err := run("..", os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(root string, systems []string) error {
	modules, err := find(root)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "systems")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	// In one workspace the common imports of several modules are read once.
	work := exec.Command("go", append([]string{"work", "init"}, modules...)...)
	work.Dir, work.Env = tmp, append(os.Environ(), "GOWORK=")
	if out, err := work.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", work, err, out)
	}
	var patterns []string
	for _, module := range modules {
		patterns = append(patterns, module+"/...")
	}
	for _, system := range systems {
		goos, goarch, _ := strings.Cut(system, "/")
		loaded, err := packages.Load(&packages.Config{
			Mode:  packages.LoadAllSyntax | packages.NeedTypesSizes,
			Dir:   tmp,
			Env:   append(os.Environ(), "GOWORK=", "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch),
			Tests: true,
		}, patterns...)
		if err != nil {
			return err
		}
		log.Printf("%s: %d packages", system, len(loaded))
		if n := packages.PrintErrors(loaded); n > 0 {
			return fmt.Errorf("%d errors", n)
		}
	}
	return nil
}

// find returns the folders of all modules but that of the tools.
func find(root string) (modules []string, err error) {
	root, err = filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "tools"):
			return fs.SkipDir
		case d.Name() == "go.mod":
			modules = append(modules, filepath.Dir(name))
		}
		return nil
	})
	return modules, err
}
