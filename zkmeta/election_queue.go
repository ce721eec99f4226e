package zkmeta

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A candidate's name is
//
//	<controller>_<boot id>_<candidacy>_<sequence>
//
// The boot id is of the process, the candidacy a number that it draws for each
// time it joins the line. A create whose outcome is unknown is so found again,
// and what is left of an earlier candidacy is known for what it is. The session
// could not tell: a create that the client queued in one session can be sent in
// the next, where it would live as long as the process, first in line, and
// nobody's.

// bootPrefix begins all names of this process.
func (e *Election) bootPrefix() string {
	return e.cfg.Controller + "_" + e.cfg.BootID.String() + "_"
}

// prefix begins the names of this candidacy.
func (e *Election) prefix() string {
	return e.bootPrefix() + strconv.FormatInt(e.candidacy, 10) + "_"
}

// sequenceOf reads the number that ZooKeeper appended to a name.
func sequenceOf(name string) (int64, bool) {
	i := strings.LastIndexByte(name, '_')
	if i < 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(name[i+1:], 10, 64)
	return n, err == nil && n >= 0
}

// inLine sorts candidates by sequence. A name without one is nobody's candidate.
func inLine(names []string) []string {
	line := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, ok := sequenceOf(name)
		return !ok
	})
	slices.SortFunc(line, func(a, b string) int {
		i, _ := sequenceOf(a)
		j, _ := sequenceOf(b)
		return cmp.Or(cmp.Compare(i, j), strings.Compare(a, b))
	})
	return line
}

// findOwn returns the place of this candidacy in the line, or -1, and what else
// in it is left of this process's.
func (e *Election) findOwn(line []string) (place int, leftovers []string) {
	place = -1
	for i, name := range line {
		switch {
		case place < 0 && e.candidacy > 0 && strings.HasPrefix(name, e.prefix()):
			place = i
		case strings.HasPrefix(name, e.bootPrefix()):
			leftovers = append(leftovers, name)
		}
	}
	return place, leftovers
}

// join begins a new candidacy.
func (e *Election) join(now time.Duration) {
	e.become(Joining)
	e.candidacy++
	e.failures = 0
	e.create(now)
}

func (e *Election) create(now time.Duration) {
	e.ask(now, func(try uint64) ElectionAction { return CreateCandidate{try, e.prefix()} })
}

// stepJoining never creates again before it has looked: an error does not say
// that the candidate is not there.
func (e *Election) stepJoining(now time.Duration, r effectResult) {
	switch r := r.(type) {
	case CandidateCreated:
		if r.Err != nil {
			e.wait(e.soon(now, e.cfg.retryAfter()))
			return
		}
		e.own = r.Name
		e.stand(now)
	case Candidates:
		if r.Err != nil {
			e.wait(e.soon(now, e.cfg.retryAfter()))
			return
		}
		if place, _ := e.findOwn(inLine(r.Names)); place < 0 {
			e.create(now)
			return
		}
		e.stand(now)
		e.takePlace(now, r.Names)
	}
}

// stand looks for its place in the line, at a time.
func (e *Election) stand(at time.Duration) {
	if e.state != Standing {
		e.become(Standing)
	}
	e.wait(at)
}

func (e *Election) stepInLine(now time.Duration, r effectResult) {
	list, ok := r.(Candidates)
	switch {
	case !ok:
	case list.Err == nil:
		e.takePlace(now, list.Names)
	case e.state == Standing:
		e.failed(now, e.cfg.retryAfter())
	default:
		e.wait(e.soon(now, e.cfg.retryAfter()))
	}
}

// takePlace acts on the line as it was read.
func (e *Election) takePlace(now time.Duration, names []string) {
	line := inLine(names)
	place, leftovers := e.findOwn(line)
	for _, name := range leftovers {
		e.try++
		e.do(DeleteCandidate{e.try, name}) // until the next look does not find it
	}
	switch {
	case place < 0 && e.state == Leading:
		e.stepDown("our candidate is gone")
		e.rest(now, e.cfg.retryAfter())
	case place < 0:
		e.rest(now, e.cfg.retryAfter())
	case e.state == Leading && place > 0:
		// The directory was made anew, with lower numbers.
		e.stepDown("our candidate is not the first")
		e.stand(now)
	case e.state == Leading:
		e.wait(now + e.cfg.lookEvery())
	case place == 0:
		e.own = line[0]
		e.takeOver(now)
	default:
		e.own = line[place]
		e.follow(now, line[place-1])
	}
}

// follow watches the one before, and nobody else: when it goes, one controller
// wakes up, not all.
func (e *Election) follow(now time.Duration, predecessor string) {
	if e.state != Watching {
		e.become(Watching)
	}
	e.failures = 0
	e.wait(now + e.cfg.lookEvery())
	if e.watched == predecessor {
		return
	}
	e.try++
	e.watch, e.watched = e.try, predecessor
	e.do(WatchCandidate{e.watch, predecessor})
}

func (e *Election) gone(now time.Duration, ev CandidateGone) {
	if e.watch == 0 || ev.Try != e.watch {
		return
	}
	e.watch, e.watched = 0, ""
	at := now
	if ev.Err != nil {
		at = e.soon(now, e.cfg.retryAfter())
	}
	e.stand(at)
}
