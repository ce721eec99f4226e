package meta

import (
	"slices"

	"github.com/shoalstore/shoal/segment"
)

// SetDeepStoreLocation records that a copy with the digest is at the URI; with
// verified, that the leader has found its size and checksum right by HEAD. Only
// then does it count. An unverified report of a verified copy changes nothing.
func SetDeepStoreLocation(k SegmentKey, digest segment.Digest, uri string, verified bool) Func {
	return func(im *Image, now int64) (Change, error) {
		s := im.Segment(k)
		switch {
		case s == nil:
			return refuse(CodeUnknownSegment, "no segment %s", k)
		case s.Status != SegmentDone:
			return refuse(CodeNotDone, "%s is %s", s.Name, s.Status)
		case s.Digest != digest:
			return refuse(CodeDigestDiffers, "%s has digest %s, not %s", s.Name, s.Digest, digest)
		case uri == "":
			return refuse(CodeInvalidRecord, "a deep-store location of %s needs a URI", s.Name)
		}
		i := slices.IndexFunc(s.Locations, func(l Location) bool { return l.URI == uri })
		if i >= 0 && (s.Locations[i].Verified || !verified) {
			return Change{}, nil
		}
		s = s.Clone()
		if i < 0 {
			i = len(s.Locations)
			s.Locations = append(s.Locations, Location{URI: uri, Since: now})
			s.shareName()
		}
		s.Locations[i].Verified = verified
		s.LeaderEpoch = im.leaderEpoch()
		s.Times.LastLocation = now
		setOnce(&s.Times.Uploaded, now)
		noteCopies(im, s, now)
		return sized(s)
	}
}

// WithdrawDeepStoreLocation records that the copy at the URI is gone or damaged. The
// last place of a segment stays, and counts no longer: what the store does not
// have now it may have again, as when a file system is mounted late, and a record
// without any place would be looked for nowhere.
func WithdrawDeepStoreLocation(k SegmentKey, uri string) Func {
	return func(im *Image, now int64) (Change, error) {
		s := im.Segment(k)
		if s == nil || uri == "" {
			return Change{}, nil
		}
		i := slices.IndexFunc(s.Locations, func(l Location) bool { return l.URI == uri })
		last := !slices.ContainsFunc(s.Locations, func(l Location) bool { return l.URI != uri && (l.URI != "" || isCurrent(im, l)) })
		if i < 0 || last && !s.Locations[i].Verified {
			return Change{}, nil
		}
		s = s.Clone()
		if last {
			s.Locations[i].Verified = false
		} else {
			s.Locations = trimmed(slices.Delete(s.Locations, i, i+1))
		}
		s.LeaderEpoch = im.leaderEpoch()
		s.Times.LastLocation = now
		return upserts(s)
	}
}
