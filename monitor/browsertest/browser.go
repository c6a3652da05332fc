// Package browsertest tests the page of package monitor in Chromium. It is a module of its own,
// because of the library that drives the browser. The program in screenshots makes the pictures of
// the docs.
package browsertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/chromedp/chromedp"
)

// ErrMissing is returned if there is no browser.
var ErrMissing = errors.New("there is no Chromium: CHROME_BIN is not set, and neither chromium, " +
	"chromium-browser nor google-chrome is in PATH")

// Open starts a Chromium without a window. Each context that chromedp.NewContext makes from the
// returned one is a new tab.
func Open(ctx context.Context) (context.Context, context.CancelFunc, error) {
	path, err := find()
	if err != nil {
		return nil, nil, err
	}
	// It shows pages of our own only, and as root, as in CI, it has no sandbox.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.NoSandbox)
	ctx, end := chromedp.NewExecAllocator(ctx, options...)
	ctx, _ = chromedp.NewContext(ctx)
	if err := chromedp.Run(ctx); err != nil {
		end()
		return nil, nil, fmt.Errorf("%s does not start: %w", path, err)
	}
	return ctx, end, nil
}

func find() (string, error) {
	if path := os.Getenv("CHROME_BIN"); path != "" {
		return path, nil
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrMissing
}
