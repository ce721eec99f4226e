package meta

import (
	"strings"
	"unique"
)

// intern makes the record share the strings that a million others have too:
// node ids, statuses, stream epochs. Without it a decoded image holds a copy
// per record, which is a good part of what a segment costs.
func intern(r Record) {
	switch r := r.(type) {
	case *Partition:
		r.State = shared(r.State)
		r.StreamEpoch = shared(r.StreamEpoch)
		internAll(r.Replicas)
	case *Segment:
		r.Status = shared(r.Status)
		r.StreamEpoch = shared(r.StreamEpoch)
		r.Committer = shared(r.Committer)
		internAll(r.Replicas)
		for i := range r.Locations {
			r.Locations[i].Node = shared(r.Locations[i].Node)
		}
		r.shareName()
	case *Node:
		r.ID = shared(r.ID)
		r.Zone = shared(r.Zone)
		r.State = shared(r.State)
	}
}

// shareName takes the name from a deep-store key, which holds it.
func (s *Segment) shareName() {
	for _, l := range s.Locations {
		if at := strings.Index(l.URI, s.Name); at >= 0 {
			s.Name = l.URI[at : at+len(s.Name)]
			return
		}
	}
}

func internAll(s []string) {
	for i := range s {
		s[i] = shared(s[i])
	}
}

func shared[T ~string](s T) T { return unique.Make(s).Value() }
