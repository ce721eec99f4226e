package s3test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/shoalstore/shoal/internal/vfs"
)

// buildMax bounds building the gateway, which fetches its module the first time.
const buildMax = 20 * time.Minute

// binary is the gateway's program. It is built once for all processes: into the
// user's cache, under a name made of what it is built from.
var binary = sync.OnceValues(func() (string, error) {
	path, err := build()
	if err != nil {
		return "", fmt.Errorf(`the S3 gateway of the tests cannot be built: %w
Its module (internal/s3gateway) comes from the Go module proxy the first time; where that cannot be
reached, fetch it elsewhere with "cd internal/s3gateway && go mod download" and bring the module cache`, err)
	}
	return path, nil
})

func build() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildMax)
	defer cancel()
	root, err := run(ctx, ".", "go", "list", "-m", "-f", "{{.Dir}}", "github.com/shoalstore/shoal")
	if err != nil {
		return "", err
	}
	source := filepath.Join(root, "internal", "s3gateway")
	version, err := run(ctx, source, "go", "env", "GOVERSION")
	if err != nil {
		return "", err
	}
	sum, err := sourceSum(source, version)
	if err != nil {
		return "", err
	}
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	final := filepath.Join(dir, "s3gateway-"+sum)
	lock, err := lockDir(ctx, dir)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	tmp, err := os.CreateTemp(dir, "building-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name()) // gone already when all went well
	if err := tmp.Close(); err != nil {
		return "", err
	}
	if _, err := run(ctx, source, "go", "build", "-o", tmp.Name(), "."); err != nil {
		return "", err
	}
	return final, os.Rename(tmp.Name(), final)
}

// lockDir waits until no other process builds there: one that is killed gives its
// lock up, and two at a time would take twice as long.
func lockDir(ctx context.Context, dir string) (io.Closer, error) {
	fsys, err := vfs.OS(dir)
	if err != nil {
		return nil, err
	}
	for {
		lock, err := fsys.Lock("building")
		if !errors.Is(err, vfs.ErrLocked) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// sourceSum is a hash of everything that the program is made of.
func sourceSum(dir, version string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, version, runtime.GOOS, runtime.GOARCH)
	found := false
	for _, name := range files { // in order
		base := filepath.Base(name)
		if !strings.HasSuffix(base, ".go") && base != "go.mod" && base != "go.sum" {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, base)
		_, err = io.Copy(h, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", err
		}
		found = true
	}
	if !found {
		return "", fmt.Errorf("there is nothing in %s", dir)
	}
	return hex.EncodeToString(h.Sum(nil)[:12]), nil
}

// cacheDir is where programs stay; without a cache, a directory for this process.
func cacheDir() (string, error) {
	if user, err := os.UserCacheDir(); err == nil {
		dir := filepath.Join(user, "shoal-tests")
		if os.MkdirAll(dir, 0o755) == nil {
			return dir, nil
		}
	}
	return os.MkdirTemp("", "shoal-tests-*")
}

// run runs a command and returns the one line that it prints.
func run(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, complaints.String())
	}
	return strings.TrimSpace(string(out)), nil
}
