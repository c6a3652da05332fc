package browsertest

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/monitor"
)

const ops = "ops@example.com"

// withLogin serves a Monitor under /debug/fairq/, and beside it the two paths of an oauth2-proxy
// that logs everybody in as ops.
func withLogin(m http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/debug/fairq/", http.StripPrefix("/debug/fairq", m))
	mux.HandleFunc("/oauth2/start", func(w http.ResponseWriter, _ *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "1", Path: "/"})
		w.Header().Set("Content-Type", "text/html")
	})
	mux.HandleFunc("/oauth2/auth", func(w http.ResponseWriter, r *http.Request) {
		if _, err := r.Cookie("session"); err != nil {
			w.WriteHeader(http.StatusUnauthorized)
		}
		w.Header().Set("X-Auth-Request-Email", ops)
	})
	mux.Handle("/", m)
	return mux
}

// nginx runs an nginx in front of a server, configured as docs/operating.md says, and returns its
// address. Below /cut/ it decodes paths.
func nginx(t *testing.T, server string) string {
	path, err := exec.LookPath("nginx")
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/nginx")
	}
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip("there is no nginx")
	}
	require.NoError(t, err)
	docs, err := os.ReadFile("../../docs/operating.md")
	require.NoError(t, err)
	location := regexp.MustCompile("(?s)```nginx\n(.*?)```").FindStringSubmatch(string(docs))[1]
	require.Contains(t, location, "http://127.0.0.1:8080;")
	location = strings.ReplaceAll(location, "http://127.0.0.1:8080;", server+";")
	cut := strings.NewReplacer("/debug/fairq/ {", "/cut/ {", server+";",
		server+"/debug/fairq/;").Replace(location)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	dir := t.TempDir()
	config := filepath.Join(dir, "nginx.conf")
	require.NoError(t, os.WriteFile(config, []byte(fmt.Sprintf(`
daemon off; pid %[1]s/pid; error_log stderr;
events {}
http {
	access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy;
	server {
		listen %[2]s; location / { return 204; } location /oauth2/ { proxy_pass %[3]s; } %[4]s %[5]s
	}
}`, dir, address, server, location, cut)), 0o600))
	cmd := exec.Command(path, "-p", dir, "-c", config)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, timeout, 1e7)
	return "http://" + address + "/"
}

// Behind an nginx that is configured as the docs say, the page is live at once, nobody sees it
// without a login, and actions are the user's.
func TestNginx(t *testing.T) {
	t.Parallel()
	q := mails(t)
	m := monitor.New(&monitor.Options{
		Actions: func(r *http.Request, asked []monitor.Action) []monitor.Action {
			return map[string][]monitor.Action{ops: asked}[r.Header.Get("X-User")]
		}, Logger: quiet,
	}, monitor.TaskQueue("mail/send 100%", q, nil))
	p := open(t, withLogin(m), "")
	front := nginx(t, strings.TrimSuffix(p.url, "/"))

	for _, path := range []string{"debug/fairq/", "debug/fairq/v1/queues", "cut/"} {
		answer, err := http.Get(front + path)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusUnauthorized, answer.StatusCode, path)
	}
	p.show(front + "oauth2/start")
	for i, path := range []string{"debug/fairq/", "cut/"} {
		p.show(front + path)
		p.until(`document.querySelectorAll("#overview tbody tr").length === 1`)
		p.show(eval[string](p, `document.querySelector("#overview a").href + "&by=none"`))
		p.ready(9 + i)
		p.click([]string{"Kick task 1", "Pause mail/send 100%"}[i])
		p.shows("#outcome", []string{"kick", "pause"}[i]+": 1 done")
	}
	is(t, q, 10, 0)
	p.show("about:blank") // before nginx ends its streams

	// A browser sends only the Origin with a plain http request to another machine.
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		front+"debug/fairq/v1/queues/mail%2Fsend%20100%25/actions/resume", nil)
	require.NoError(t, err)
	r.Header = http.Header{"Origin": {strings.TrimSuffix(front, "/")}, "Cookie": {"session=1"}}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
}
