package deepstore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// hangingOpener is an opener of which what is named "hangs" does, until release.
func hangingOpener(t *testing.T, patience time.Duration) (o *Opener, uri func(name string) string, release func()) {
	t.Helper()
	root := t.TempDir()
	o = NewOpener([]string{root}, S3Config{})
	o.patience = patience
	gate := make(chan struct{})
	o.making = func(uri string, at placed) (Store, error) {
		if strings.HasSuffix(uri, "hangs") {
			<-gate
		}
		return o.make(uri, at)
	}
	uri = func(name string) string {
		u, err := FileURI(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	return o, uri, func() { close(gate) }
}

// A directory whose server is away takes as long to open as it pleases. That is its
// own matter: the stores of other tables open meanwhile, and are swept.
func TestAStoreThatDoesNotOpenHoldsUpNoOther(t *testing.T) {
	o, uri, release := hangingOpener(t, time.Hour)
	opened := make(chan error, 1)
	go func() {
		_, err := o.Store(uri("hangs"))
		opened <- err
	}()
	for range 2 { // anew, and as one that is open
		if _, err := o.Store(uri("other")); err != nil {
			t.Fatal(err)
		}
		if _, err := o.Sweep(t.Context(), SweepAge); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-opened:
		t.Fatalf("it opened: %v", err)
	default:
	}
	release()
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
}

// Whoever asks for it is told after a while, and finds it open once it is.
func TestAStoreThatDoesNotOpenSaysSo(t *testing.T) {
	o, uri, release := hangingOpener(t, time.Millisecond)
	for range 3 {
		if _, err := o.Store(uri("hangs")); !errors.Is(err, errNoAnswer) || !strings.Contains(err.Error(), uri("hangs")) {
			t.Fatal(err)
		}
	}
	release()
	for { // it may not have come back from there yet
		if _, err := o.Store(uri("hangs")); err == nil {
			return
		} else if !errors.Is(err, errNoAnswer) {
			t.Fatal(err)
		}
	}
}

// What was opened for a store that cannot be made is closed again: it is asked for
// again and again.
func TestAStoreThatCannotBeMadeLeavesNothingOpen(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	uri, err := FileURI(filepath.Join(root, "file"))
	if err != nil {
		t.Fatal(err)
	}
	o := NewOpener([]string{root}, S3Config{})
	before := openFiles(t)
	for range 20 {
		if _, err := o.Store(uri); err == nil {
			t.Fatal("a file is a store")
		}
	}
	if after := openFiles(t); after >= before+20 {
		t.Errorf("%d files are open, %d were before", after, before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
