package commit

import (
	"time"

	"github.com/shoalstore/shoal/segment"
)

// quickOffsets is how far short of a committed end a replica may be for catching
// up to count as quick although the rows are not in its buffer yet: a second or
// so of reading.
const quickOffsets = 10_000

// settling is how RETAINING gets to a file with the committed digest. There are
// two ways, and the first to arrive wins: build the same bytes (rows up to
// exactly the end, seal, compare), or download them.
type settling struct {
	end         int64
	digest      segment.Digest
	downloading bool
	retryAt     time.Duration // when to look for a source again
	retryWait   time.Duration // doubles from H to 10 H
	rebuildAt   time.Duration // when to stop hoping for a source, and build
	alone       bool          // that moment came: build, whatever the mode
	catchUpBy   time.Duration // when a quick catch-up was not quick
}

// stepDone: the image shows the segment committed, by this node or another.
func (r *Replica) stepDone(now time.Duration, rec Record) {
	s := &r.settling
	if r.state == Retaining && s.end == rec.End && s.digest == rec.Digest {
		if s.retryAt != never { // the image changed: perhaps there is a source now
			s.retryWait = r.cfg.Timing.Hold
			s.retryAt = min(s.retryAt, now+s.retryWait)
		}
		return
	}
	own := r.sealedAt(rec.End)
	if r.state == ReplicaCommitting && rec.Committer == r.cfg.Instance && own != nil && own.info.Digest == rec.Digest {
		s.end, s.digest = rec.End, rec.Digest
		r.committed()
		return
	}
	r.settle(now, rec.End, rec.Digest)
}

// committed: the leader wrote this replica's file into the record.
func (r *Replica) committed() {
	end := r.sealedEnd()
	r.settling.end, r.settling.digest = end, r.sealedAt(end).info.Digest
	r.become(ReplicaCommitted)
	r.finish()
}

// settle is told the committed end and digest, and chooses the way there.
//
//   - A file sealed at that end, or about to be: compare.
//   - No row at or past the end appended, none below it missing: seal, compare;
//     in mode download fetch it, and keep the rows.
//   - Short of it: go on to the end; unless that is quick, download meanwhile.
//   - Past it, or no builder: download. The rows stay until the copy is verified.
func (r *Replica) settle(now time.Duration, end int64, digest segment.Digest) {
	r.hush()
	if r.settling.downloading {
		r.do(StopDownload{}) // of another generation
	}
	for i := range r.sealed {
		r.sealed[i].told = false
	}
	broken := r.state == ReplicaError || r.failed != ""
	if r.state != Retaining {
		r.become(Retaining)
	}
	hold := r.cfg.Timing.Hold
	r.settling = settling{end: end, digest: digest, retryAt: never, retryWait: hold, rebuildAt: never, catchUpBy: never}
	r.filling = false

	switch own := r.sealedAt(end); {
	case own != nil:
		r.compare(own)
	case r.builder == builderSealing && r.sealEnd == end:
		r.tellSuccessor()
	case r.builder != builderOpen, r.filled > end:
		r.tellSuccessor()
		r.download()
	case r.next >= end:
		r.arrive()
	case broken:
		r.tellSuccessor()
		r.download()
	default:
		r.filling, r.target = true, end
		if r.fetched >= end || end-r.next <= quickOffsets {
			r.settling.catchUpBy = now + r.cfg.Timing.patience()
		} else {
			r.download()
		}
	}
}

// arrive: the builder holds exactly the committed rows.
func (r *Replica) arrive() {
	r.filling = false
	r.settling.catchUpBy = never
	r.tellSuccessor()
	if r.cfg.Download && !r.settling.alone {
		r.download()
		return
	}
	r.seal(r.settling.end)
}

// compare looks at the own file at the committed end; if it differs, the bytes
// are fetched.
func (r *Replica) compare(own *sealedFile) {
	if own.info.Digest == r.settling.digest {
		r.become(Retained)
		r.finish()
		return
	}
	r.setAside(own)
	r.tellSuccessor()
	r.download()
}

// advanceSettling looks at the position and the deadlines.
func (r *Replica) advanceSettling(now time.Duration) {
	s := &r.settling
	if r.filling && r.builder == builderOpen && r.next >= r.target {
		r.arrive()
	}
	if now >= s.catchUpBy {
		s.catchUpBy = never
		r.download()
	}
	if now >= s.retryAt {
		r.download()
	}
	if now >= s.rebuildAt {
		s.rebuildAt = never
		r.rebuild()
	}
}

// rebuild: nobody has the committed bytes to give, so make them, from the rows
// that were kept or from the stream. The search for a source goes on beside it.
func (r *Replica) rebuild() {
	s := &r.settling
	s.alone = true
	switch {
	case r.sealedAt(s.end) != nil, r.filling, r.builder == builderSealing:
		// a different file, or under way
	case r.builder == builderOpen && r.filled <= s.end && r.next >= s.end:
		r.seal(s.end)
	default:
		r.filling, r.target = true, s.end
		r.restart()
	}
}

// download starts the search for a source, if it is not on.
func (r *Replica) download() {
	s := &r.settling
	s.retryAt = never
	if s.downloading {
		return
	}
	s.downloading = true
	r.do(Download{s.end, s.digest})
}

// stepNoSource: try again with back-off; past 10 H of that, rebuild.
func (r *Replica) stepNoSource(now time.Duration) {
	s := &r.settling
	if r.state != Retaining || !s.downloading {
		return
	}
	s.downloading = false
	s.retryAt = now + s.retryWait
	s.retryWait = min(2*s.retryWait, r.cfg.Timing.patience())
	building := r.filling || r.builder == builderSealing
	if s.rebuildAt == never && !building && r.sealedAt(s.end) == nil {
		s.rebuildAt = now + r.cfg.Timing.patience()
	}
}

// stepDownloaded: a verified copy is installed; only now may the rows go.
func (r *Replica) stepDownloaded(digest segment.Digest) {
	if r.state != Retaining || digest != r.settling.digest {
		return
	}
	r.settling.downloading = false
	r.become(Discarded)
	r.finish()
}

// finish says what is to be done about files, rows and the successor at an end.
func (r *Replica) finish() {
	r.hush()
	r.filling = false
	if r.settling.downloading {
		r.settling.downloading = false
		r.do(StopDownload{})
	}
	r.finishSealed()
	r.do(FreeRows{})
	if r.settling.end > 0 {
		r.tellSuccessor()
	}
}

// finishSealed tells the committed file from those that are not.
func (r *Replica) finishSealed() {
	for i := range r.sealed {
		s := &r.sealed[i]
		switch {
		case s.told:
		case s.info.End == r.settling.end && s.info.Digest == r.settling.digest:
			s.told = true
			r.do(KeepFile{s.info})
		default:
			r.setAside(s)
		}
	}
}

func (r *Replica) setAside(s *sealedFile) {
	if !s.told {
		s.told = true
		r.do(SetAside{s.info})
	}
}

// tellSuccessor says that the end is final and the partition's feed is free.
func (r *Replica) tellSuccessor() {
	if !r.successorTold {
		r.successorTold = true
		r.do(SuccessorMayStart{r.settling.end})
	}
}
