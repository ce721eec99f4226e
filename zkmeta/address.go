package zkmeta

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

const (
	addressScheme = "zookeeper://"
	defaultPort   = "2181"
)

// Address says where the metadata is: the servers of one ensemble, and the znode
// under which everything of one cluster lives.
type Address struct {
	Servers []string // host:port, an IPv6 address in brackets
	Root    string   // "/shoal"; never "/", as other things live there
}

// ParseAddress reads "zookeeper://h1:2181,h2:2181,h3:2181/shoal". A server
// without a port gets 2181. It reports all faults. What it returns round-trips
// through String.
func ParseAddress(s string) (Address, error) {
	rest, ok := strings.CutPrefix(s, addressScheme)
	if !ok {
		// Not repeated: what is no address may be a secret.
		return Address{}, fmt.Errorf("zkmeta: an address begins with %s", addressScheme)
	}
	// A credential would go into every log line that names the address.
	if strings.Contains(rest, "@") {
		return Address{}, errors.New("zkmeta: an address names no user: user and password have settings of their own")
	}
	hosts, root, ok := strings.Cut(rest, "/")
	var faults []error
	if !ok || root == "" {
		faults = append(faults, errors.New("zkmeta: the address lacks the root znode, as /shoal"))
	} else if strings.Contains(root, ",") {
		// "h1:2181/shoal,h2:2181/shoal": it would be one server and a strange root.
		faults = append(faults, fmt.Errorf("zkmeta: the root znode /%s has a comma: all servers come first, and the root once, after the last", root))
	} else if why := pathFault("/" + root); why != "" {
		faults = append(faults, fmt.Errorf("zkmeta: the root znode /%s %s", root, why))
	} else if first, _, _ := strings.Cut(root, "/"); first == "zookeeper" {
		faults = append(faults, errors.New("zkmeta: the root znode /zookeeper is ZooKeeper's own"))
	}
	a := Address{Root: "/" + root}
	seen := make(map[string]bool)
	for host := range strings.SplitSeq(hosts, ",") {
		server, err := parseServer(host)
		if err == nil && seen[server] {
			err = fmt.Errorf("zkmeta: the server %s is named twice", server)
		}
		if err != nil {
			faults = append(faults, err)
			continue
		}
		seen[server] = true
		a.Servers = append(a.Servers, server)
	}
	if len(faults) > 0 {
		return Address{}, errors.Join(faults...)
	}
	return a, nil
}

// String returns what ParseAddress reads. There is no secret in it.
func (a Address) String() string {
	return addressScheme + strings.Join(a.Servers, ",") + a.Root
}

// validate is for an Address that was put together by hand.
func (a Address) validate() error {
	_, err := ParseAddress(a.String())
	return err
}

func parseServer(s string) (string, error) {
	host, port, err := splitServer(s)
	if err != nil {
		return "", err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", fmt.Errorf("zkmeta: the server %q has the port %q: not a number from 1 to 65535", s, port)
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

func splitServer(s string) (host, port string, err error) {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		host, after, closed := strings.Cut(inner, "]")
		ip, err := netip.ParseAddr(host)
		if !closed || err != nil || !ip.Is6() {
			return "", "", fmt.Errorf("zkmeta: the server %q is no IPv6 address in brackets", s)
		}
		if after == "" {
			return ip.String(), defaultPort, nil
		}
		port, ok := strings.CutPrefix(after, ":")
		if !ok {
			return "", "", fmt.Errorf("zkmeta: the server %q has %q after the bracket: a port is :2181", s, after)
		}
		return ip.String(), port, nil
	}
	host, port, ok := strings.Cut(s, ":")
	if !ok {
		port = defaultPort
	}
	switch {
	case strings.Contains(port, ":"):
		return "", "", fmt.Errorf("zkmeta: the server %q has two colons: an IPv6 address goes in brackets", s)
	case host == "":
		return "", "", fmt.Errorf("zkmeta: the server %q has no host", s)
	case strings.ContainsFunc(host, notInHost):
		return "", "", fmt.Errorf("zkmeta: the server %q has a character that is in no host name", s)
	}
	return host, port, nil
}

func notInHost(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '.' || r == '_')
}

// pathFault returns what is wrong with an absolute znode path, or "". It is at
// least as strict as the server, which would answer a bad path with a closed
// connection or an error without a name.
func pathFault(path string) string {
	if !strings.HasPrefix(path, "/") {
		return "does not begin with a slash"
	}
	for part := range strings.SplitSeq(path[1:], "/") {
		switch {
		case part == "":
			return "has an empty part, or ends in a slash"
		case part == "." || part == "..":
			return "has a part that is . or .."
		case strings.ContainsFunc(part, notInPath):
			return "has a character that ZooKeeper does not take"
		}
	}
	return ""
}

// notInPath knows the ranges of the server, which counts in UTF-16: whatever
// needs a surrogate is out, and bytes that are no UTF-8 decode to U+FFFD.
func notInPath(r rune) bool {
	return r <= 0x1f || 0x7f <= r && r <= 0x9f || 0xd800 <= r && r <= 0xf8ff || r >= 0xfff0
}
