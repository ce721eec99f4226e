package zkmeta

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
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
