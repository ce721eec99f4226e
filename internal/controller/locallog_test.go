package controller

import (
	"testing"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
)

// A follower that is ended between the reset of its log and the image of the snapshot that
// it was reset to gives back an image of before; what the log says counts.
func TestResumeAfterASnapshotThatNobodyTookIn(t *testing.T) {
	l := &localLog{fs: vfs.NewMem(), opts: metalog.LogOptions{Dir: localLogDir, Logger: zerolog.Nop()}}
	if err := l.open(); err != nil {
		t.Fatal(err)
	}
	defer l.log.Close()
	before, im := l.image, meta.Empty()
	for offset := range int64(5) {
		b := &meta.Batch{Offset: offset, Epoch: 1, Term: uuid.MustParse("00000000-0000-4000-8000-000000000001"), Time: 1}
		if offset == 0 {
			b.Upserts = []meta.Record{
				&meta.Cluster{ID: uuid.MustParse("00000000-0000-4000-8000-0000000000c1"), FormatVersion: meta.FormatVersion},
				&meta.Leader{Epoch: 1, Term: b.Term, Controller: "c", URL: "http://c"},
			}
		}
		var err error
		if im, err = im.Apply(b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.snaps.Write(t.Context(), im); err != nil {
		t.Fatal(err)
	}
	if err := l.log.Reset(metalog.Position{Offset: im.Next(), LastEpoch: im.Epoch(), LastTerm: im.LastTerm()}); err != nil {
		t.Fatal(err)
	}
	if err := l.resume(before); err != nil {
		t.Fatal(err)
	}
	if l.image.Next() != 5 || l.image.Cluster() == nil {
		t.Errorf("resumed at %d", l.image.Next())
	}
}
