package zkmeta

import (
	"errors"
	"fmt"
	"math"
	"time"
)

const (
	clockMax     = time.Second            // that two clocks may differ
	slowWriteP50 = 100 * time.Millisecond // above it commits are slow
)

// judge says in words what is wrong, and what to do about it.
func (r *Report) judge(cfg ProbeConfig) {
	for i := range r.Servers {
		r.judgeServer(&r.Servers[i], cfg)
	}
	r.judgeEnsemble()
	r.judgeTree()
}

func (r *Report) problem(server, do, format string, args ...any) {
	r.Problems = append(r.Problems, Finding{Server: server, Problem: fmt.Sprintf(format, args...), Do: do})
}

func (r *Report) note(server, do, format string, args ...any) {
	r.Notes = append(r.Notes, Finding{Server: server, Problem: fmt.Sprintf(format, args...), Do: do})
}

func (r *Report) judgeServer(s *ServerReport, cfg ProbeConfig) {
	switch {
	case !s.Reachable:
		r.problem(s.Server, "start it, or mend the address, the name service or the firewall", "it cannot be reached: %v", s.fault)
		return
	case errors.As(s.fault, new(*handshakeError)):
		r.problem(s.Server, "name the port that takes TLS, and see that --zookeeper-ca-file has what its certificate is signed by, that the certificate is of that host, and that it is not over", "it takes connections and no TLS: %v", s.fault)
		return
	case s.split != "" || s.fault != nil && s.Mode == "read-only":
		r.problem(s.Server, "start more of the servers; if they are up, look into its log", "it runs and serves nobody, as it is not with a majority of its ensemble")
		return
	case errors.Is(s.fault, ErrNoAuth):
		r.problem(s.Server, "mend --zookeeper-user and --zookeeper-password-file, or allow this user to read the root", "access was refused: %v", s.fault)
		return
	case s.fault != nil:
		r.problem(s.Server, "see that it is ZooKeeper that listens there, by TLS or not as the settings say, and look into its log", "it takes connections and gives no session: %v", s.fault)
		return
	case errors.Is(s.write, ErrNoAuth):
		r.problem(s.Server, "use the user that the znode belongs to, or have its ACL changed", "this user may not create znodes below %s", s.at)
	case s.write != nil && s.LargestWrite == 0 && s.Refused > 0:
		r.problem(s.Server, "look into its log", "it takes no request of %d bytes, nor a smaller one: %v", s.Refused, s.write)
	case s.write != nil:
		r.problem(s.Server, "look into its log", "a write failed: %v", s.write)
	}
	r.judgeMeasures(s, cfg)
}

func (r *Report) judgeMeasures(s *ServerReport, cfg ProbeConfig) {
	if s.LargestWrite > 0 && s.LargestWrite < MultiBytesMax {
		r.problem(s.Server, "set -Djute.maxbuffer=1048575, ZooKeeper's own default, or more, on every server, and restart them one by one",
			"it refused a request of %d bytes and took one of %d: jute.maxbuffer is too small, Shoal sends up to %d", s.Refused, s.LargestWrite, MultiBytesMax)
	}
	if s.ClockAheadMs != nil && math.Abs(*s.ClockAheadMs)-s.RoundTripMs/2 > ms(clockMax) {
		r.problem(s.Server, "mend the clocks (NTP), here or there", "the ensemble's clock is %.1f s ahead of the one here", *s.ClockAheadMs/1000)
	}
	if s.Writes > 0 && s.WriteP50Ms > ms(slowWriteP50) {
		r.note(s.Server, "give ZooKeeper a disk of its own that syncs fast, or a server that is less busy", "writes are slow: half of them take more than %.0f ms", s.WriteP50Ms)
	}
	if !s.Words {
		r.note(s.Server, "4lw.commands.whitelist=srvr,mntr,conf in its configuration allows them", "it allows no four-letter words: version and mode are not known")
	}
	asked := cfg.Access.SessionTimeout
	if asked == 0 {
		asked = sessionTimeoutDefault
	}
	if s.SessionTimeoutMs > 0 && s.SessionTimeoutMs != asked.Milliseconds() {
		r.note(s.Server, "minSessionTimeout and maxSessionTimeout in its configuration bound it", "it grants a session timeout of %d ms where %d were asked for", s.SessionTimeoutMs, asked.Milliseconds())
	}
}

func (r *Report) judgeEnsemble() {
	for _, s := range r.Servers {
		switch {
		case s.Mode == "standalone" && len(r.Servers) > 1:
			r.problem(s.Server, "make one ensemble of the servers, or name this one alone", "it stands alone, and the address names %d servers: each would have a truth of its own", len(r.Servers))
		case (s.Mode == "leader" || s.Mode == "follower") && len(r.Servers) == 1:
			r.note(s.Server, "name all servers in the address", "it is one of several, and the only one in the address: when it is down, the others are not asked")
		}
	}
}

func (r *Report) judgeTree() {
	t := &r.Tree
	var (
		none      *NoTreeError
		foreign   *ForeignTreeError
		migrating *MigratingError
		moved     *MovedError
	)
	for _, name := range t.strangers {
		r.problem("", "delete it", "the candidate %s/%s/%s is of no session: whoever stands behind it in the line never leads", t.Root, electionDir, name)
	}
	switch {
	case t.fault == nil && t.Standing == "whole" && len(t.Candidates) == 0:
		r.note("", "start one with --metadata "+r.Address, "no controller runs")
	case t.fault == nil:
	case errors.As(t.fault, &none):
		r.problem("", "found one with `shoal metadata init`, bring one with `shoal metadata migrate`, or mend the address", "there is no cluster at %s", t.Root)
	case errors.As(t.fault, &foreign) && foreign.Newer:
		r.problem("", "use the program that has written it, or a newer one", "the tree is not one that this program can use: %s: %s", foreign.Path, foreign.Reason)
	case errors.As(t.fault, &foreign):
		r.problem("", "use another root", "the tree is not one that this program can use: %s: %s", foreign.Path, foreign.Reason)
	case errors.As(t.fault, &migrating):
		r.problem("", "run that `shoal metadata migrate` again", "the tree is half made: a migration from %s was begun and not finished", migrating.From)
	case errors.As(t.fault, &moved):
		r.problem("", "start the controller there, or bring the metadata back with `shoal metadata migrate`", "the metadata was moved away on %s, to %s", moved.At.UTC().Format(time.RFC3339), moved.To)
	case errors.Is(t.fault, ErrNoAuth):
		r.problem("", "use the user that the tree belongs to, or have its ACL changed", "this user may not read the tree: %v", t.fault)
	default:
		r.problem("", "look at that znode with zkCli", "the tree cannot be read: %v", t.fault)
	}
}
