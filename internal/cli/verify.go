package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

type segmentsVerify struct {
	Target []string `arg:"" help:"A FILE, or a TABLE and a SEGMENT." placeholder:"FILE|TABLE SEGMENT"`
	Digest string   `help:"The BLAKE3 digest that the file must have, in hex; without it the digits in its name." placeholder:"HEX"`
}

func (c segmentsVerify) Run(ctx context.Context, a *app) error {
	switch len(c.Target) {
	case 1:
		return c.file(a, c.Target[0])
	case 2:
		return c.copies(ctx, a, c.Target[0], c.Target[1])
	}
	return usageError{errors.New("segments verify wants a FILE, or a TABLE and a SEGMENT")}
}

// fileVerdict is what `shoal segments verify FILE -o json` prints.
type fileVerdict struct {
	File      string         `json:"file"`
	OK        bool           `json:"ok"`
	SizeBytes int64          `json:"sizeBytes"`
	Digest    segment.Digest `json:"digest"`
	Rows      int64          `json:"rows"`
	Problem   string         `json:"problem,omitempty"`
	// DamagedPieces are those that the sidecar beside the file tells, of 4 MiB,
	// counted from 0.
	DamagedPieces []int `json:"damagedPieces,omitempty"`
}

func (c segmentsVerify) file(a *app, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", name)
	}
	v := fileVerdict{File: name, SizeBytes: info.Size()}
	if err := c.judge(f, &v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if a.json {
		if err := a.writeJSON(v); err != nil {
			return err
		}
	} else if v.OK {
		fmt.Fprintf(a.Out, "%s: ok, %s, %s rows, blake3 %s\n", name, size(v.SizeBytes), count(v.Rows), v.Digest)
	}
	if !v.OK {
		return no("%s: damaged: %s", name, v.Problem)
	}
	return nil
}

// judge hashes the file and reads it. What is wrong with the file goes into v;
// the error is that of reading it.
func (c segmentsVerify) judge(f *os.File, v *fileVerdict) error {
	want, err := c.want(v.File)
	if err != nil {
		return err
	}
	if v.SizeBytes == 0 {
		v.Problem = "it is empty"
		return nil
	}
	_, v.Digest, err = segment.HashFile(f, v.SizeBytes)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(v.Digest.String(), want) {
		v.Problem = fmt.Sprintf("its digest is %s, it should be %s", v.Digest, ellipsis(want))
		v.DamagedPieces = damagedPieces(f, v.SizeBytes, want)
		if n := len(v.DamagedPieces); n > 0 {
			v.Problem += fmt.Sprintf("; %d pieces of %d differ, the first at byte %d", n, segment.PieceCount(v.SizeBytes), int64(v.DamagedPieces[0])*segment.PieceSize)
		}
		return nil
	}
	if v.Rows, err = countRows(f, v.SizeBytes); err != nil {
		v.Problem = err.Error()
		return nil
	}
	v.OK = true
	return nil
}

// want is the digest, or how it begins, that the file must have.
func (c segmentsVerify) want(name string) (string, error) {
	if c.Digest != "" {
		d, err := segment.ParseDigest(c.Digest)
		if err != nil {
			return "", usageError{fmt.Errorf("--digest: %w", err)}
		}
		return d.String(), nil
	}
	_, short, err := segment.ParseFileName(filepath.Base(name))
	if err != nil {
		return "", usageError{fmt.Errorf("the name does not say what the digest should be, and --digest was not given: %w", err)}
	}
	return short, nil
}

func ellipsis(digest string) string {
	if len(digest) < 2*len(segment.Digest{}) {
		return digest + "…"
	}
	return digest
}

// damagedPieces names the pieces that differ, if the sidecar is beside the file
// and is the one of the digest.
func damagedPieces(f *os.File, sizeBytes int64, want string) (bad []int) {
	data, err := os.ReadFile(strings.TrimSuffix(f.Name(), ".parquet") + ".pieces")
	if err != nil {
		return nil
	}
	var p segment.Pieces
	if p.UnmarshalBinary(data) != nil || p.Size != sizeBytes {
		return nil
	}
	if root, err := p.Root(); err != nil || !strings.HasPrefix(root.String(), want) {
		return nil
	}
	for i := range p.Count() {
		off, n := p.Range(i)
		v := p.Verifier(i)
		if _, err := io.Copy(v, io.NewSectionReader(f, off, n)); err != nil || v.Verify() != nil {
			bad = append(bad, i)
		}
	}
	return bad
}

// countRows reads every row.
func countRows(f *os.File, sizeBytes int64) (n int64, err error) {
	r, err := segment.OpenFile(f, sizeBytes)
	if err != nil {
		return 0, err
	}
	for _, err := range r.Rows() {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// copyVerdict is what one node found.
type copyVerdict struct {
	Node    string         `json:"node"`
	OK      bool           `json:"ok"`
	Digest  segment.Digest `json:"digest,omitzero"`
	Problem string         `json:"problem,omitempty"`
	silent  bool           // it could not be asked
}

// copies has every node that should have the segment read its copy in full.
func (c segmentsVerify) copies(ctx context.Context, a *app, table, name string) error {
	var s life
	if err := a.control.Get(ctx, segmentPath(table, name, "metadata"), &s); err != nil {
		return err
	}
	if s.Status != meta.SegmentDone {
		return no("segment %s is %s: there is nothing to verify", name, s.Status)
	}
	verdicts := []copyVerdict{}
	for _, src := range s.Sources {
		if src.Node != "" {
			verdicts = append(verdicts, a.verifyAt(ctx, src, s.Digest))
		}
	}
	if a.json {
		if err := a.writeJSON(verdicts); err != nil {
			return err
		}
	} else {
		t := newTable(a.Out, "NODE", "OK", "PROBLEM")
		for _, v := range verdicts {
			t.row(v.Node, yes(v.OK), v.Problem)
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	if len(verdicts) == 0 {
		return fmt.Errorf("no node that is up has segment %s: nobody could be asked", name)
	}
	if !slices.ContainsFunc(verdicts, func(v copyVerdict) bool { return !v.silent }) {
		return fmt.Errorf("no node with segment %s answers: nothing is known of its copies", name)
	}
	for _, v := range verdicts {
		if !v.OK {
			return no("not every copy of %s is good", name)
		}
	}
	return nil
}

func (a *app) verifyAt(ctx context.Context, src api.SourceView, want segment.Digest) copyVerdict {
	v := copyVerdict{Node: src.Node}
	// Hashing a large segment takes longer than a small call may.
	patient := &httpx.Client{HTTP: a.http.HTTP, Token: a.http.Token, Timeout: -1}
	defer patient.Close()
	err := patient.Call(ctx, http.MethodPost, src.URL+"/verify", nil, &v)
	switch {
	case err != nil:
		var answer *httpx.Error
		v.OK, v.Problem, v.silent = false, message(err), !errors.As(err, &answer)
	case v.Digest != want:
		v.OK, v.Problem = false, fmt.Sprintf("its digest is %s, not %s", v.Digest, want)
	}
	return v
}
