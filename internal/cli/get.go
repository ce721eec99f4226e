package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/schollz/progressbar/v3"

	"github.com/shoalstore/shoal/internal/cmdline"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/peerdl"
	"github.com/shoalstore/shoal/segment"
)

type segmentsGet struct {
	Table   string   `arg:"" help:"Name of the table."`
	Segment string   `arg:"" help:"Name of the segment."`
	Out     string   `short:"O" name:"output-file" help:"File, or directory, to write; the segment's own file name in this directory without it." placeholder:"FILE"`
	Node    []string `help:"Fetch from these nodes only, http://HOST:PORT, without asking a controller; the bytes are then held to what the node says they are. May be given several times." placeholder:"URL"`

	DeepstoreRoot []string `help:"Directory that copies in file:// deep stores are read from, where this machine has it. May be given several times." placeholder:"DIR"`
}

// got is what `shoal segments get -o json` prints.
type got struct {
	File         string         `json:"file"`
	SizeBytes    int64          `json:"sizeBytes"`
	Digest       segment.Digest `json:"digest"`
	ResumedBytes int64          `json:"resumedBytes"`
	FetchedBytes int64          `json:"fetchedBytes"`
	// AlreadyThere: the file was complete; its bytes were verified.
	AlreadyThere bool `json:"alreadyThere"`
}

func (c segmentsGet) Run(ctx context.Context, a *app) (err error) {
	w, err := c.find(ctx, a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	dir, name, err := c.target(w.digest)
	if err != nil {
		return err
	}
	g := got{File: filepath.Join(dir, name), SizeBytes: w.size, Digest: w.digest}
	there, err := sameFile(g.File, w)
	if err != nil {
		return err
	}
	if there {
		g.AlreadyThere = true
		return a.printGot(g)
	}
	root, err := vfs.OS(dir)
	if err != nil {
		return err
	}
	part := name + ".part"
	lock, err := root.Lock(part + ".lock")
	if err != nil {
		return fmt.Errorf("download to %s: %w", g.File, err)
	}
	defer func() { err = errors.Join(err, root.Remove(part+".lock"), lock.Close()) }()
	stats, err := a.download(ctx, root, part, name, w)
	if err != nil {
		kept := ""
		if _, statErr := root.Stat(part); statErr == nil {
			kept = fmt.Sprintf("\nwhat arrived is kept in %s.part; the same command goes on", g.File)
		}
		return fmt.Errorf("%s: %w%s", c.Segment, err, kept)
	}
	g.ResumedBytes, g.FetchedBytes = stats.ResumedBytes, stats.FetchedBytes
	return a.printGot(g)
}

func (a *app) printGot(g got) error {
	if a.json {
		return a.writeJSON(g)
	}
	what := ""
	switch {
	case g.AlreadyThere:
		what = ", was there already"
	case g.ResumedBytes > 0:
		what = fmt.Sprintf(", %s of it from an earlier try", size(g.ResumedBytes))
	}
	_, err := fmt.Fprintf(a.Out, "%s: %s verified%s\n", g.File, size(g.SizeBytes), what)
	return err
}

// target is the directory and the name of the file to write.
func (c segmentsGet) target(d segment.Digest) (dir, name string, err error) {
	name = segment.FileName(c.Segment, d)
	if c.Out == "" {
		return ".", name, nil
	}
	if info, err := os.Stat(c.Out); err == nil && info.IsDir() {
		return c.Out, name, nil
	}
	dir, name = filepath.Split(filepath.Clean(c.Out))
	if dir == "" {
		dir = "."
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", "", fmt.Errorf("there is no directory %s", dir)
	}
	return dir, name, nil
}

// sameFile reports whether the file is there with the bytes that are wanted.
// Other bytes are not overwritten.
func sameFile(name string, w *wanted) (bool, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	if info.Size() == w.size {
		_, digest, err := segment.HashFile(f, info.Size())
		if err != nil {
			return false, fmt.Errorf("%s: %w", name, err)
		}
		if digest == w.digest {
			return true, nil
		}
	}
	return false, no("%s is there with other bytes, and is left alone; remove it or choose another name", name)
}

// download fetches into the .part and publishes it under name.
func (a *app) download(ctx context.Context, root vfs.FS, part, name string, w *wanted) (peerdl.Stats, error) {
	bar := a.progressBar(w.size, name)
	defer bar.Close()
	res, err := peerdl.NewDownloader(peerdl.Config{Client: a.bulk.HTTP}).Download(ctx, peerdl.Request{
		Digest: w.digest, Size: w.size, Sources: w.sources, FS: root, Part: part,
		Reserve:  func(bytes int64) (func(), error) { return func() {}, hasRoom(root, bytes) },
		Progress: func(p peerdl.Progress) { _ = bar.Set64(p.HeldBytes) },
	})
	if err != nil {
		return peerdl.Stats{}, err
	}
	if err := vfs.Publish(root, res.File, part, name); err != nil {
		return res.Stats, err
	}
	return res.Stats, peerdl.Forget(root, part)
}

func hasRoom(root vfs.FS, bytes int64) error {
	free, err := root.Free()
	if err == nil && free < bytes {
		err = fmt.Errorf("%s are free", size(free))
	}
	return err
}

// progressBar draws on a terminal only.
func (a *app) progressBar(total int64, name string) *progressbar.ProgressBar {
	if a.json || !cmdline.IsTerminal(a.Err) {
		return progressbar.DefaultBytesSilent(total)
	}
	return progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(a.Err), progressbar.OptionSetDescription(name), progressbar.OptionShowBytes(true),
		progressbar.OptionUseIECUnits(true), progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish(),
		progressbar.OptionFullWidth())
}
