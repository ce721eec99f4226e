package commit

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/shoalstore/shoal/segment"
)

// replicaScript runs the replica's transcripts. Inputs:
//
//	config k=v …          start, maxRows, maxBytes, maxAge (s), uploadWait (s), attempt, download
//	rows 0-9 12 …         the feed has these rows next (10 raw bytes each, or bytes=n)
//	reader at 50          the reader moved on without a row
//	reader failed TEXT, partition ended
//	image k=v …           done=40, digest, by, endRequested, attempt, epoch, gone
//	HOLD, CATCH_UP 40, COMMIT 40 [B], KEEP 40 d, …   the answer to the last Send
//	no answer             none came
//	late HOLD             the answer to the Send before the last
//	sealed DIGEST, seal failed TEXT, uploaded [URI], downloaded DIGEST, no source
//	tick                  and `repeat 100 HOLD`: so many times, wait for the timer, answer
//
// Rows that were left wait in the feed and are offered again when the machine
// is consuming: by the next `rows`, or by `rows` alone.
type replicaScript struct {
	r       *Replica
	cfg     ReplicaConfig
	feed    []int64
	fetched int64
	timer   time.Duration
	sent    []Send
	sealEnd int64
	rows    int64 // of the builder when it was sealed
	counts  map[string]int
}

func newReplicaScript() *replicaScript {
	return &replicaScript{
		cfg: ReplicaConfig{
			Key: testKey, Segment: testSegment, Instance: "s1", Incarnation: 1, StoreID: testStore,
			StreamEpoch: "0", Timing: DefaultTiming,
		},
		timer: never, counts: map[string]int{},
	}
}

func (s *replicaScript) machine() *Replica {
	if s.r == nil {
		s.r = NewReplica(s.cfg)
		s.fetched = s.cfg.Start
		s.r.Step(0, ImageChanged{Record{Mine: true, Attempt: s.cfg.Attempt, LeaderEpoch: 1}})
	}
	return s.r
}

func (s *replicaScript) run(now time.Duration, input string) string {
	words := strings.Fields(input)
	if words[0] == "config" {
		s.config(settings(words[1:]))
		return ""
	}
	s.machine()
	switch words[0] {
	case "rows":
		return s.offer(now, words[1:])
	case "repeat":
		return s.repeat(now, int(number(words[1])), strings.Join(words[2:], " "))
	}
	return s.step(now, s.event(input))
}

func (s *replicaScript) config(set map[string]string) {
	for k, v := range set {
		switch k {
		case "start":
			s.cfg.Start = number(v)
		case "maxRows":
			s.cfg.MaxRows = number(v)
		case "maxBytes":
			s.cfg.MaxBytes = number(v)
		case "maxAge":
			s.cfg.MaxAge = time.Duration(number(v)) * time.Second
		case "uploadWait":
			s.cfg.UploadWait = time.Duration(number(v)) * time.Second
		case "attempt":
			s.cfg.Attempt = int(number(v))
		case "download":
			s.cfg.Download = true
		default:
			panic("transcript: no such setting: " + k)
		}
	}
}

func (s *replicaScript) event(input string) ReplicaEvent {
	words := strings.Fields(input)
	rest := func(n int) string { return strings.Join(words[n:], " ") }
	switch {
	case strings.HasPrefix(input, "reader at "):
		s.fetched = number(words[2])
		return Fed{Next: s.fetched, Fetched: s.fetched}
	case strings.HasPrefix(input, "reader failed"):
		return ReaderFailed{rest(2)}
	case input == "partition ended":
		return PartitionEnded{}
	case words[0] == "image":
		return ImageChanged{s.record(settings(words[1:]))}
	case words[0] == "sealed":
		return Sealed{segment.Info{
			Digest: digestOf(words[1]), Start: s.cfg.Start, End: s.sealEnd, Rows: s.rows, RawBytes: 10 * s.rows,
			SizeBytes: 1, LastLeaderEpoch: segment.NoLeaderEpoch,
		}}
	case strings.HasPrefix(input, "seal failed"):
		return SealFailed{s.sealEnd, rest(2)}
	case words[0] == "uploaded":
		return Uploaded{rest(1)}
	case words[0] == "downloaded":
		return Downloaded{digestOf(words[1])}
	case input == "no source":
		return NoSource{"nobody has it"}
	case input == "tick":
		return Tick{}
	case input == "no answer":
		return NoAnswer{s.lastID()}
	case words[0] == "late":
		return Answered{s.sent[len(s.sent)-2].ID, replyOf(words[1:])}
	}
	return Answered{s.lastID(), replyOf(words)}
}

// lastID is the ID of the last Send, 0 if there was none.
func (s *replicaScript) lastID() uint64 {
	if len(s.sent) == 0 {
		return 0
	}
	return s.sent[len(s.sent)-1].ID
}

func replyOf(words []string) Reply {
	r := Reply{Status: Status(words[0])}
	if len(words) > 1 {
		r.Offset = number(words[1])
	}
	switch {
	case r.Status == Commit && len(words) > 2:
		r.BuildTimeSec = number(words[2])
	case r.Status == Commit:
		r.BuildTimeSec = DefaultTiming.buildTimeSec()
	case len(words) > 2:
		r.Digest = digestOf(words[2])
	}
	return r
}

func (s *replicaScript) record(set map[string]string) Record {
	rec := Record{Mine: true, LeaderEpoch: 1, Attempt: s.cfg.Attempt}
	for k, v := range set {
		switch k {
		case "done":
			rec.Done, rec.End = true, number(v)
		case "digest":
			rec.Digest = digestOf(v)
		case "by":
			rec.Committer = v
		case "endRequested":
			rec.EndRequested = true
		case "attempt":
			rec.Attempt = int(number(v))
		case "epoch":
			rec.LeaderEpoch = number(v)
		case "gone":
			rec.Mine = false
		default:
			panic("transcript: no such fact: " + k)
		}
	}
	return rec
}

// offer adds rows to the feed and offers what waits, as a shell does.
func (s *replicaScript) offer(now time.Duration, words []string) string {
	size := int64(10)
	for _, w := range words {
		if n, ok := strings.CutPrefix(w, "bytes="); ok {
			size = number(n)
			continue
		}
		from, to, ok := strings.Cut(w, "-")
		if !ok {
			to = from
		}
		for o := number(from); o <= number(to); o++ {
			s.feed = append(s.feed, o)
			s.fetched = max(s.fetched, o+1)
		}
	}
	appended, skipped := 0, 0
offering:
	for len(s.feed) > 0 {
		switch s.r.Offer(now, s.feed[0], size) {
		case LeaveRow:
			break offering
		case SkipRow:
			skipped++
		default:
			appended++
		}
		s.feed = s.feed[1:]
	}
	next := s.fetched
	if len(s.feed) > 0 {
		next = s.feed[0]
	}
	said := []string{fmt.Sprintf("%d appended", appended)}
	if skipped > 0 {
		said = append(said, fmt.Sprintf("%d skipped", skipped))
	}
	if len(s.feed) > 0 {
		said = append(said, fmt.Sprintf("%d wait from %d", len(s.feed), s.feed[0]))
	}
	return strings.Join(said, ", ") + " · " + s.step(now, Fed{Next: next, Fetched: s.fetched})
}

// repeat answers, and waits for the timer, n times over.
func (s *replicaScript) repeat(now time.Duration, n int, answer string) string {
	clear(s.counts)
	for range n {
		s.step(now, s.event(answer))
		now = s.timer
		s.step(now, Tick{})
	}
	return fmt.Sprintf("%d sends, %d seals, %d downloads by t%s · %s",
		s.counts["send"], s.counts["seal"], s.counts["download"], seconds(now), s.r.State())
}

func (s *replicaScript) step(now time.Duration, ev ReplicaEvent) string {
	said := []string{}
	for _, a := range s.r.Step(now, ev) {
		said = append(said, s.actionText(a))
	}
	return strings.Join(append(said, s.r.State().String()), " · ")
}

func (s *replicaScript) actionText(a ReplicaAction) string {
	switch a := a.(type) {
	case Send:
		s.counts["send"]++
		s.sent = append(s.sent, a)
		return "send " + sentText(a.Message)
	case Seal:
		s.counts["seal"]++
		s.sealEnd, s.rows = a.End, s.r.Rows()
		return fmt.Sprintf("seal at %d", a.End)
	case Upload:
		return "upload " + nameOf(a.Info.Digest)
	case Download:
		s.counts["download"]++
		return fmt.Sprintf("download %d %s", a.End, nameOf(a.Digest))
	case StopDownload:
		return "stop download"
	case KeepFile:
		return "keep file " + nameOf(a.Info.Digest)
	case SetAside:
		return "set aside " + nameOf(a.Info.Digest)
	case FreeRows:
		return "free rows"
	case Restart:
		s.feed, s.fetched = nil, a.From
		if a.Private {
			return fmt.Sprintf("restart at %d (private)", a.From)
		}
		return fmt.Sprintf("restart at %d", a.From)
	case SuccessorMayStart:
		return fmt.Sprintf("successor from %d", a.Offset)
	case SetTimer:
		s.timer = a.At
		if a.At == NoTimer {
			return "no timer"
		}
		return "timer t" + seconds(a.At)
	}
	return fmt.Sprintf("%T?", a)
}

func sentText(m Message) string {
	rows := strconv.FormatInt(m.Rows, 10) + " rows"
	switch m.Kind {
	case SegmentConsumed:
		return fmt.Sprintf("c(%d,%s) %s", m.Offset, m.Reason, rows)
	case SegmentStoppedConsuming:
		return fmt.Sprintf("st(%d,%s)", m.Offset, m.Error)
	case SegmentCommitStart:
		return fmt.Sprintf("cs(%d) %s", m.Offset, rows)
	case SegmentCommitEnd:
		text := fmt.Sprintf("ce(%d,%s) %s", m.Offset, nameOf(m.Digest), rows)
		if m.DeepStoreURI != "" {
			text += " " + m.DeepStoreURI
		}
		return text
	}
	return fmt.Sprintf("ex(%d)", m.ExtraTimeSec)
}
