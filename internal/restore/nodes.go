package restore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/metalog"
)

// NodesError says that nodes are not named as they have to be.
type NodesError struct{ Reason string }

func (e *NodesError) Error() string { return "restore: " + e.Reason }

// nodeURLs checks the URLs of nodes. One that is named twice is refused: whoever has named
// it twice has most likely left another one out, which may have the most.
func nodeURLs(given []string) (urls []string, err error) {
	seen := map[string]string{}
	for _, raw := range given {
		same, err := sameURL(raw)
		if err != nil {
			return nil, err
		}
		if first, ok := seen[same]; ok {
			return nil, &NodesError{fmt.Sprintf("%s and %s are one node: name each node once, and all of them", first, raw)}
		}
		seen[same] = raw
		urls = append(urls, strings.TrimRight(raw, "/"))
	}
	if len(urls) == 0 {
		return nil, &NodesError{"no node is named"}
	}
	return urls, nil
}

// sameURL is what all spellings of a URL have in common.
func sameURL(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", &NodesError{fmt.Sprintf("%q is not the URL of a node: it is http://HOST:PORT", raw)}
	}
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.TrimSuffix(host, "."), port) + strings.TrimRight(u.Path, "/"), nil
}

// lookAtNodes asks all nodes, of which each has to answer.
func lookAtNodes(ctx context.Context, client *httpx.Client, urls []string) (all []*Holding, err error) {
	var good []*Holding
	errs := make([]error, len(urls))
	for i, url := range urls {
		h := newHolding(client, url)
		all = append(all, h)
		if errs[i] = h.look(ctx, h.lookAtSnapshots, h.lookAtHeader, h.lookAtLog); errs[i] == nil && h.Node {
			good = append(good, h)
		}
	}
	for i, h := range all {
		if errors.Is(errs[i], errHeadless) {
			if again, err := h.lookAgain(ctx, good); again {
				errs[i] = err
			}
		}
		errs[i] = h.advise(ctx, errs[i])
	}
	return all, errors.Join(errs...)
}

// advise makes of what went wrong with a node an error that says what to do.
func (h *Holding) advise(ctx context.Context, err error) error {
	var answer *httpx.Error
	switch {
	case err == nil && !h.Node, errors.As(err, &answer) && answer.Code == metalog.CodeNotLeader:
		return fmt.Errorf("restore: %s is a controller: name nodes", h.URL)
	case err == nil, ctx.Err() != nil:
		return err
	case errors.Is(err, errHeadless):
		return fmt.Errorf("%w. Name another node too that has this snapshot; if there is none, leave this one out", err)
	case errors.As(err, &answer):
		return fmt.Errorf("restore: node %s has not told what it has: %w. Is this the URL of a node? Its log says more; leave it out if it cannot be mended", h.URL, answer)
	case isUnreachable(err):
		return fmt.Errorf("restore: node %s does not answer (%w): start it, or leave it out if it is lost too", h.URL, innermost(err))
	}
	return fmt.Errorf("%w. Leave this node out, if another one has the metadata", err)
}

// isUnreachable tells a server that was not reached, or has not answered in full.
func isUnreachable(err error) bool {
	return errors.As(err, new(net.Error)) || errors.As(err, new(*url.Error))
}

// innermost is what the network said, without the request that everybody knows.
func innermost(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// disagree tells which nodes list a snapshot of the same id with other bytes: the same id
// has the same bytes everywhere, so that one of the two is damaged.
func disagree(all []*Holding) (notes []error) {
	first := map[metalog.SnapshotID]*Holding{}
	for _, h := range all {
		for _, ref := range h.Snapshots {
			o, ok := first[ref.SnapshotID]
			if !ok {
				first[ref.SnapshotID] = h
			} else if !slices.Contains(o.Snapshots, ref) {
				notes = append(notes, fmt.Errorf("snapshot %s of %s has other bytes than that of %s: one of the two is damaged", ref.SnapshotID, h.URL, o.URL))
			}
		}
	}
	return notes
}
