// Release prepares a release of all modules of this repository under one version, and proves that
// users can install it.
//
//	go run ./release                  # in tools: prove that the commit installs as if released
//	go run ./release -version v0.1.0  # prepare that version too: everything but the push
//
// docs/releasing.md says why all modules have one version.
package main

import (
	"archive/zip"
	"bytes"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	modzip "golang.org/x/mod/zip"
	"golang.org/x/sync/errgroup"
)

//go:embed testdata
var programs embed.FS

// A part is a module of the repository.
type part struct {
	dir  string // below the repository's root, with slashes; "" for the root
	file *modfile.File
}

// isCommand reports whether users install the part with go install and a version, which refuses a
// go.mod with replace. So its tag is on a commit of its own, behind the release.
func (p part) isCommand() bool { return strings.HasPrefix(p.dir, "cmd/") }

// replaceNothing writes the go.mod of a command as users get it.
func (p part) replaceNothing(root string) error {
	file, err := modfile.Parse("go.mod", modfile.Format(p.file.Syntax), nil)
	if err != nil {
		return err
	}
	for _, r := range file.Replace {
		if err := file.DropReplace(r.Old.Path, r.Old.Version); err != nil {
			return err
		}
	}
	file.Cleanup()
	return os.WriteFile(filepath.Join(root, p.dir, "go.mod"), modfile.Format(file.Syntax), 0o666)
}

func (p part) path() string { return p.file.Module.Mod.Path }

// tag returns the tag that the go command looks for, see "Mapping versions to commits" in the Go
// Modules Reference.
func (p part) tag(version string) string { return path.Join(p.dir, version) }

func main() {
	log.SetFlags(0)
	version := flag.String("version", "",
		"the version to prepare, as in v0.1.0; none only proves what is committed")
	flag.Parse()
	if err := run("..", *version); err != nil {
		log.Fatal("release: ", err)
	}
}

func run(root, version string) error {
	parts, err := find(root)
	if err != nil {
		return err
	}
	if version == "" {
		if version, err = required(parts); err != nil {
			return err
		}
		return prove(root, "HEAD", version, parts)
	}
	if err := prepare(root, version, parts); err != nil {
		return err
	}
	// A commit of the work tree, on no branch.
	revision, err := command(root, nil, "git", "stash", "create")
	if err != nil {
		return err
	}
	if revision == "" { // everything was prepared before
		revision = "HEAD"
	}
	if err := prove(root, revision, version, parts); err != nil {
		return err
	}
	return tag(root, version, parts)
}

// find returns the modules of the repository, the root first, without tools, which no user needs.
func find(root string) (parts []part, err error) {
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != root &&
			(d.Name() == "testdata" || d.Name() == "tools" || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.Name() != "go.mod":
			return nil
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, err := modfile.Parse(name, data, nil)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(name))
		parts = append(parts, part{strings.TrimPrefix(filepath.ToSlash(dir), "."), file})
		return err
	})
	slices.SortFunc(parts, func(a, b part) int { return strings.Compare(a.dir, b.dir) })
	return parts, err
}

// ours calls f for each requirement of one part on another.
func ours(parts []part, f func(from part, r *modfile.Require) error) error {
	for _, p := range parts {
		for _, r := range p.file.Require {
			if strings.HasPrefix(r.Mod.Path+"/", parts[0].path()+"/") {
				if err := f(p, r); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// required returns the version in which the parts require each other.
func required(parts []part) (version string, err error) {
	err = ours(parts, func(from part, r *modfile.Require) error {
		if version == "" {
			version = r.Mod.Version
		}
		if r.Mod.Version != version || !semver.IsValid(version) || module.IsPseudoVersion(version) {
			return fmt.Errorf("%s/go.mod requires %v; all modules must require each other in one "+
				"version that can be tagged",
				from.dir, r.Mod)
		}
		return nil
	})
	return version, err
}

// prepare writes the version into every go.mod and the date into the changelog.
func prepare(root, version string, parts []part) error {
	if !semver.IsValid(version) || semver.Build(version) != "" {
		return fmt.Errorf("version %q: want one like v0.1.0", version)
	}
	if status, err := command(root, nil, "git", "status", "--porcelain"); err != nil || status != "" {
		return errors.Join(err,
			fmt.Errorf("the work tree has changes that are not committed:\n%s", status))
	}
	err := ours(parts, func(from part, r *modfile.Require) error {
		return from.file.AddRequire(r.Mod.Path, version)
	})
	if err != nil {
		return err
	}
	for _, p := range parts {
		name := filepath.Join(root, p.dir, "go.mod")
		if err := os.WriteFile(name, modfile.Format(p.file.Syntax), 0o666); err != nil {
			return err
		}
	}
	name := filepath.Join(root, "CHANGELOG.md")
	log, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	heading := "\n## " + version + " - "
	dated := strings.Replace(string(log), heading+"unreleased\n",
		heading+time.Now().Format(time.DateOnly)+"\n", 1)
	if !strings.Contains(dated, heading) || strings.Contains(dated, " - unreleased\n") {
		return fmt.Errorf("CHANGELOG.md has no section %q, or another one that is unreleased",
			strings.TrimSpace(heading)+" unreleased")
	}
	return os.WriteFile(name, []byte(dated), 0o666)
}

// prove packs a revision into a module proxy in the file system, as a proxy would serve the
// release. Then it installs every module from it, each in an empty module outside the repository,
// with a module cache that has none of ours.
func prove(root, revision, version string, parts []part) error {
	tmp, err := os.MkdirTemp("", "fairq-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	tree, proxy := filepath.Join(tmp, "tree"), filepath.Join(tmp, "proxy")
	if err := extract(root, revision, tree); err != nil {
		return err
	}
	for _, p := range parts {
		if p.isCommand() {
			if err := p.replaceNothing(tree); err != nil {
				return err
			}
		}
		if err := pack(proxy, tree, module.Version{Path: p.path(), Version: version}, p); err != nil {
			return fmt.Errorf("pack %s: %w", p.path(), err)
		}
	}
	env, err := userEnv(tmp, proxy, parts[0].path())
	if err != nil {
		return err
	}
	var installs errgroup.Group
	installs.SetLimit(runtime.NumCPU()) // the go command mostly waits, and unpacks
	for i, p := range parts {
		installs.Go(func() error {
			start := time.Now()
			dir := filepath.Join(tmp, fmt.Sprint("user", i))
			err := install(dir, env, p, version)
			if err == nil && p.isCommand() {
				err = installCommand(dir, env, p, version)
			}
			if err != nil {
				return fmt.Errorf("install %s@%s: %w", p.path(), version, err)
			}
			fmt.Printf("installed %s@%s in an empty module (%v)\n", p.path(), version,
				time.Since(start).Round(time.Second/10))
			return nil
		})
	}
	return installs.Wait()
}

// userEnv is the environment of a user without our modules. Other modules come from this machine's
// cache if possible.
func userEnv(tmp, proxy, prefix string) (env []string, err error) {
	old, err := command(tmp, nil, "go", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return nil, err
	}
	cache, proxies, _ := strings.Cut(old, "\n")
	return append(os.Environ(),
		"GOWORK=off",
		// the cache can be deleted, and builds are found again in another folder
		"GOFLAGS=-modcacherw -trimpath",
		"GOMODCACHE="+filepath.Join(tmp, "cache"),
		"GOPROXY="+fileURL(proxy)+","+fileURL(filepath.Join(cache, "cache", "download"))+","+proxies,
		"GONOSUMDB="+prefix+","+prefix+"/*",
	), nil
}

func fileURL(dir string) string {
	dir = filepath.ToSlash(dir)
	if !strings.HasPrefix(dir, "/") { // a drive of Windows
		dir = "/" + dir
	}
	return "file://" + dir
}

// extract writes the files of a revision into an empty folder.
func extract(root, revision, dir string) error {
	archive := dir + ".zip"
	_, err := command(root, nil, "git", "archive", "--format=zip", "--output="+archive, revision)
	if err != nil {
		return err
	}
	files, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer files.Close()
	return os.CopyFS(dir, files)
}

// pack writes the files that a proxy serves for one version of a module.
func pack(proxy, tree string, m module.Version, p part) error {
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	dir := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(tree, "LICENSE"))
	if err != nil {
		return err
	}
	// As the go command does it for modules below the root.
	if err := os.WriteFile(filepath.Join(tree, p.dir, "LICENSE"), license, 0o666); err != nil {
		return err
	}
	var packed bytes.Buffer
	if err := modzip.CreateFromDir(&packed, m, filepath.Join(tree, p.dir)); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(tree, p.dir, "go.mod"))
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"list":              []byte(m.Version + "\n"),
		m.Version + ".info": fmt.Appendf(nil, `{"Version":%q}`, m.Version),
		m.Version + ".mod":  mod,
		m.Version + ".zip":  packed.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// install installs a module like a user: go get, then build and run a program. The program is in
// testdata; without one, install builds all packages of the module.
func install(dir string, env []string, p part, version string) error {
	if err := os.Mkdir(dir, 0o777); err != nil {
		return err
	}
	calls := [][]string{
		{"go", "mod", "init", "example.com/user"},
		{"go", "get", p.path() + "@" + version},
	}
	program := "root.go"
	if p.dir != "" {
		program = strings.ReplaceAll(p.dir, "/", "_") + ".go"
	}
	switch source, err := programs.ReadFile("testdata/" + program); {
	case errors.Is(err, fs.ErrNotExist):
		calls = append(calls, []string{"go", "build", p.path() + "/..."})
	case err != nil:
		return err
	default:
		if err := os.WriteFile(filepath.Join(dir, "main.go"), source, 0o666); err != nil {
			return err
		}
		calls = append(calls, []string{"go", "mod", "tidy"}, []string{"go", "run", "."})
	}
	for _, call := range calls {
		if _, err := command(dir, env, call...); err != nil {
			return err
		}
	}
	return nil
}

// installCommand installs a command like a user, by go install with a version, and runs it.
func installCommand(dir string, env []string, p part, version string) error {
	bin := filepath.Join(dir, "bin")
	if _, err := command(dir, append(slices.Clip(env), "GOBIN="+bin), "go", "install",
		p.path()+"@"+version); err != nil {
		return err
	}
	name := path.Base(p.dir)
	help, err := command(dir, env, filepath.Join(bin, name), "-h")
	if err == nil && !strings.Contains(help, name+" [flags] command") {
		err = fmt.Errorf("%s -h does not tell how it is used, but:\n%s", name, help)
	}
	return err
}

// tag commits the prepared release and tags it for every module.
func tag(root, version string, parts []part) error {
	if _, err := command(root, nil, "git", "commit", "--quiet", "--all", "--allow-empty", "--message",
		"Release "+version); err != nil {
		return err
	}
	push := "git push --atomic origin HEAD"
	for _, p := range parts {
		commit, err := "HEAD", error(nil)
		if p.isCommand() {
			commit, err = commitCommand(root, version, p)
		}
		if err != nil {
			return err
		}
		name := p.tag(version)
		if _, err := command(root, nil, "git", "tag", "--annotate", "--message", p.path()+" "+version,
			name, commit); err != nil {
			return err
		}
		push += " " + name
	}
	fmt.Printf("\n%s is committed and tagged here. To publish it:\n\n    %s\n", version, push)
	return nil
}

// commitCommand commits a command as users get it, behind HEAD and on no branch.
func commitCommand(root, version string, p part) (commit string, err error) {
	if err := p.replaceNothing(root); err != nil {
		return "", err
	}
	revision, err := command(root, nil, "git", "stash", "create")
	if err == nil {
		commit, err = command(root, nil, "git", "commit-tree", revision+"^{tree}", "-p", "HEAD",
			"-m", "Release "+version+" of "+p.path()+", whose go.mod replaces nothing")
	}
	_, restored := command(root, nil, "git", "restore", ".")
	return commit, errors.Join(err, restored)
}

// command runs a command and returns its output, without the line breaks at the end.
func command(dir string, env []string, args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return strings.TrimRight(string(out), "\n"), nil
}
