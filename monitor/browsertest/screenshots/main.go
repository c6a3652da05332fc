// Screenshots makes the pictures of the page of package monitor: it runs examples/dashboard with a
// flood that does not end, and after five minutes writes the numbers and the table of keys to
// docs/monitor-light.png, -dark.png and -phone.png.
//
//	cd monitor/browsertest && go run ./screenshots
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/fairq/fairq/monitor/browsertest"
)

// root is the folder of the repository, seen from the module.
const root = "../.."

// settle is how long the flood lasts before it is shown.
const settle = 5 * time.Minute

func main() {
	log.SetFlags(0)
	if err := run(context.Background()); err != nil {
		log.Fatal("screenshots: ", err)
	}
}

// build returns the dashboard, to be started in the root of the repository.
func build(ctx context.Context) (dashboard *exec.Cmd, remove func(), err error) {
	dir, err := os.MkdirTemp("", "screenshots")
	if err != nil {
		return nil, nil, err
	}
	program := filepath.Join(dir, "dashboard")
	compile := exec.CommandContext(ctx, "go", "build", "-o", program, "./examples/dashboard")
	compile.Dir, compile.Stderr = root, os.Stderr
	if err := compile.Run(); err != nil {
		return nil, nil, err
	}
	dashboard = exec.CommandContext(ctx, program, "-addr", "localhost:0", "-flood",
		"300", "-every", "1s")
	dashboard.Dir, dashboard.Stderr = root, os.Stderr
	return dashboard, func() { os.RemoveAll(dir) }, nil
}

func run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dashboard, remove, err := build(ctx)
	if err != nil {
		return err
	}
	defer remove()
	out, err := dashboard.StdoutPipe()
	if err != nil {
		return err
	}
	if err := dashboard.Start(); err != nil {
		return err
	}
	defer func() {
		cancel()
		_ = dashboard.Wait() // otherwise it would outlive this program
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return err
	}
	page := regexp.MustCompile(`http://\S+/`).FindString(line)
	browser, end, err := browsertest.Open(ctx)
	if err != nil {
		return err
	}
	defer end()
	err = chromedp.Run(browser, chromedp.EmulateViewport(1280, 900),
		chromedp.Navigate(page+"?queue=grid"), chromedp.Sleep(settle))
	if err != nil {
		return err
	}
	for _, picture := range []struct {
		name, colours string
		width, height int64
	}{
		{"light", "light", 1100, 584}, {"dark", "dark", 1100, 584}, {"phone", "light", 390, 844},
	} {
		var png []byte
		err := chromedp.Run(browser,
			chromedp.EmulateViewport(picture.width, picture.height),
			emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: picture.colours},
			}),
			// The sections between the two would fill the picture.
			chromedp.Evaluate(`for (const id of ['charts', 'next', 'failures']) `+
				`document.getElementById(id).style.display = 'none'`, nil),
			chromedp.Sleep(2*time.Second), chromedp.CaptureScreenshot(&png))
		if err != nil {
			return err
		}
		name := filepath.Join(root, "docs", fmt.Sprintf("monitor-%s.png", picture.name))
		if err := os.WriteFile(name, png, 0o666); err != nil {
			return err
		}
	}
	return nil
}
