// Release prepares a release of all modules of this repository under one version, and proves that
// users can install it.
//
//	go run ./release                  # in tools: prove that the commit installs as if released
//	go run ./release -version v0.1.0  # prepare that version too: everything but the push
//
// CONTRIBUTING.md says why all modules have one version.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const repository = "github.com/fairq/fairq"

// required matches a requirement of one of our modules on another.
var required = regexp.MustCompile(`(` + repository + `(?:/\S+)?) v\S+`)

var validVersion = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[\w.]+)?$`)

func main() {
	log.SetFlags(0)
	version := flag.String("version", "",
		"the version to prepare, as in v0.1.0; none only proves what is committed")
	flag.Parse()
	tmp, err := os.MkdirTemp("", "fairq-release-")
	if err != nil {
		log.Fatal("release: ", err)
	}
	s := script{tmp: tmp, clone: filepath.Join(tmp, "clone"), version: *version}
	s.release()
	os.RemoveAll(tmp)
	if s.err != nil {
		log.Fatal("release: ", s.err)
	}
}

// script is a list of commands, and stops at the first failure. The work is done in a clone, so
// that a failure leaves nothing behind.
type script struct {
	tmp, clone string
	version    string
	dirs       []string // of the modules
	env        []string
	err        error
}

func (s *script) fail(err error) { // the first error counts
	if s.err == nil {
		s.err = err
	}
}

// run returns the output of a command.
func (s *script) run(dir string, args ...string) string {
	if s.err != nil {
		return ""
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), s.env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.fail(fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out))
		return ""
	}
	return strings.TrimSpace(string(out))
}

// edit changes a file of the clone.
func (s *script) edit(name string, change func(text string) string) {
	name = filepath.Join(s.clone, name)
	text, err := os.ReadFile(name)
	s.fail(err)
	s.fail(os.WriteFile(name, []byte(change(string(text))), 0o666))
}

func (s *script) release() {
	s.run("..", "git", "clone", "--no-tags",
		"--config", "user.name="+s.run("..", "git", "config", "user.name"),
		"--config", "user.email="+s.run("..", "git", "config", "user.email"), ".", s.clone)
	for _, file := range strings.Fields(s.run(s.clone, "git", "ls-files", "go.mod", "*/go.mod")) {
		if dir := path.Dir(file); dir != "tools" { // which no user needs
			s.dirs = append(s.dirs, dir)
		}
	}
	preparing := s.version != ""
	if preparing {
		s.prepare()
		s.compare()
	} else {
		s.version = s.run(filepath.Join(s.clone, "check"), "go", "list", "-m", "-f", "{{.Version}}",
			repository)
	}
	tags := s.tag()
	s.prove()
	if !preparing {
		return
	}
	s.run("..", "git", "pull", "--ff-only", "--tags", s.clone, "HEAD")
	if s.err == nil {
		fmt.Printf("\n%s is committed and tagged here. To publish it:\n\n"+
			"    git push --atomic origin HEAD %s\n", s.version, strings.Join(tags, " "))
	}
}

// prepare writes the version into every go.mod and the date into the changelog.
func (s *script) prepare() {
	if !validVersion.MatchString(s.version) {
		s.fail(fmt.Errorf("version %q: want one like v0.1.0", s.version))
	}
	if status := s.run("..", "git", "status", "--porcelain"); status != "" {
		s.fail(fmt.Errorf("the work tree has changes that are not committed:\n%s", status))
	}
	for _, dir := range s.dirs {
		s.edit(dir+"/go.mod", func(text string) string {
			return required.ReplaceAllString(text, "$1 "+s.version)
		})
	}
	s.edit("CHANGELOG.md", func(text string) string {
		heading := "\n## " + s.version + " - "
		dated := strings.Replace(text, heading+"unreleased\n",
			heading+time.Now().Format(time.DateOnly)+"\n", 1)
		if !strings.Contains(dated, heading) || strings.Contains(dated, " - unreleased\n") {
			s.fail(fmt.Errorf("CHANGELOG.md has no section %q, or another one that is unreleased",
				strings.TrimSpace(heading)+" unreleased"))
		}
		return dated
	})
	s.run(s.clone, "git", "commit", "--all", "--allow-empty", "--message",
		"Release "+s.version)
}

// compare prints how the exported API of the root module differs from that of the last release.
func (s *script) compare() {
	tags := strings.Fields(
		s.run("..", "git", "tag", "--list", "v*", "--merged=HEAD", "--sort=-version:refname"))
	if len(tags) == 0 {
		return
	}
	old := filepath.Join(s.tmp, "old")
	s.run("..", "git", "clone", "--branch", tags[0], ".", old)
	s.run(old, "go", "tool", "-modfile=tools/go.mod", "apidiff", "-m", "-w", "../api", repository)
	fmt.Printf("Since %s:\n%s\n", tags[0],
		s.run(s.clone, "go", "tool", "-modfile=tools/go.mod", "apidiff", "-m", "../api", repository))
}

// isCommand reports whether users install the module with go install and a version, which refuses
// a go.mod with replace. So its tag is on a commit of its own, behind the release.
func isCommand(dir string) bool { return strings.HasPrefix(dir, "cmd/") }

// tag sets the tags that the go command looks for, see "Mapping versions to commits" in the Go
// Modules Reference.
func (s *script) tag() (tags []string) {
	for _, dir := range s.dirs {
		module := path.Join(repository, dir)
		tags = append(tags, path.Join(dir, s.version))
		if isCommand(dir) {
			drop := []string{"go", "mod", "edit"}
			for _, replaced := range s.dirs {
				drop = append(drop, "-dropreplace="+path.Join(repository, replaced))
			}
			s.run(filepath.Join(s.clone, dir), drop...)
			s.run(s.clone, "git", "commit", "--all", "--message",
				"Release "+s.version+" of "+module+", whose go.mod replaces nothing")
		}
		s.run(s.clone, "git", "tag", "--annotate", "--message", module+" "+s.version,
			tags[len(tags)-1])
		if isCommand(dir) {
			s.run(s.clone, "git", "reset", "--hard", "HEAD~")
		}
	}
	return tags
}

// prove installs every module like a user, in an empty module outside the repository, with a
// module cache that has none of ours. The go command finds the clone where it looks for the
// repository. Other modules come from this machine's cache if possible.
func (s *script) prove() {
	cache, proxies := s.run(".", "go", "env", "GOMODCACHE"), s.run(".", "go", "env", "GOPROXY")
	s.env = []string{
		"GOWORK=off",
		// the cache can be deleted, and builds are found again in another folder
		"GOFLAGS=-modcacherw -trimpath",
		"GOMODCACHE=" + filepath.Join(s.tmp, "cache"),
		"GOPROXY=" + fileURL(filepath.Join(cache, "cache", "download")) + "," + proxies,
		"GOPRIVATE=" + repository,
		"GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=url." + fileURL(s.clone) + ".insteadOf",
		"GIT_CONFIG_VALUE_0=https://" + repository,
	}
	for _, dir := range s.dirs {
		module := path.Join(repository, dir)
		user, err := os.MkdirTemp(s.tmp, "user")
		s.fail(err)
		s.run(user, "go", "mod", "init", "example.com/user")
		s.run(user, "go", "get", module+"/...@"+s.version)
		s.run(user, "go", "build", module+"/...")
		if isCommand(dir) {
			s.run(user, "go", "run", module+"@"+s.version, "-h")
		}
		if s.err == nil {
			fmt.Printf("installed %s@%s in an empty module\n", module, s.version)
		}
	}
}

func fileURL(dir string) string {
	// a drive of Windows has no slash before it
	return "file:///" + strings.TrimPrefix(filepath.ToSlash(dir), "/")
}
