package zkmeta

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"
)

const (
	wordMax       = 2 * time.Second // for one question
	wordAnswerMax = 256 << 10       // bytes of the answer that are read
)

// ask sends a four-letter word to a server and returns the answer.
func (d *dialer) ask(ctx context.Context, server, word string) (string, error) {
	w, err := d.dial(ctx, server)
	if err != nil {
		return "", err
	}
	conn := w.Conn // the answer is no handshake
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(wordMax)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(io.LimitReader(conn, wordAnswerMax))
	return string(answer), err
}

// notAllowed and notServing are what a server says instead of an answer.
const (
	notAllowed = "is not in the whitelist"
	notServing = "not currently serving requests"
)

// hearWords asks for what a server says of itself. Servers allow only srvr unless they
// are told otherwise.
func (r *ServerReport) hearWords(ctx context.Context, d *dialer) {
	for _, word := range []string{"srvr", "mntr", "conf"} {
		answer, err := d.ask(ctx, r.Server, word)
		switch {
		case err != nil || strings.Contains(answer, notAllowed):
			continue
		case strings.Contains(answer, notServing):
			r.Words, r.split = true, strings.TrimSpace(answer)
			return
		}
		for line := range strings.Lines(answer) {
			r.hear(word, strings.TrimSpace(line))
		}
	}
}

// hear takes in one line: "Mode: leader", "zk_server_state\tleader", "tickTime=2000".
func (r *ServerReport) hear(word, line string) {
	separator := map[string]string{"srvr": ": ", "mntr": "\t", "conf": "="}[word]
	key, value, ok := strings.Cut(line, separator)
	if !ok {
		return
	}
	switch strings.ToLower(key) {
	case "zookeeper version", "zk_version":
		r.Words = true
		r.Version, _, _ = strings.Cut(value, ",")
		r.Version, _, _ = strings.Cut(r.Version, "-") // the build
	case "mode", "zk_server_state":
		r.Mode = value
	case "latency min/avg/max":
		if parts := strings.Split(value, "/"); len(parts) == 3 {
			r.LatencyMs = parsed[float64](parts[1])
		}
	case "zk_avg_latency":
		r.LatencyMs = parsed[float64](value)
	case "node count", "zk_znode_count":
		r.Znodes = parsed[int64](value)
	}
	if k := strings.NewReplacer(".", "", "_", "").Replace(strings.ToLower(key)); strings.HasSuffix(k, "jutemaxbuffer") || strings.HasSuffix(k, "jutemaxbuffersize") {
		r.MaxBufferBytes = parsed[int64](value)
	}
}

func parsed[N int64 | float64](s string) *N {
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil {
		return nil
	}
	n := N(f)
	return &n
}
