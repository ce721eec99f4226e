package controller

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/meta"
)

// register takes a node in, or tells it why not.
func (c *Controller) register(w http.ResponseWriter, r *http.Request) error {
	var in api.Register
	if err := httpx.ReadJSON(r, maxBody, &in); err != nil {
		return err
	}
	if err := c.checkNodeURL(in.URL, r.RemoteAddr); err != nil {
		return err
	}
	im, err := c.image()
	if err != nil {
		return err
	}
	if ours := im.Cluster().ID; in.ClusterID != ours && in.ClusterID != [16]byte{} {
		return httpx.Errorf(http.StatusConflict, api.CodeOtherCluster,
			"node %s belongs to cluster %s; this is cluster %s", httpx.OneLine(in.Node), in.ClusterID, ours)
	}
	var incarnation int64
	res, err := c.submit(r.Context(), meta.RegisterNode(meta.Registration{
		ID: in.Node, URL: strings.TrimRight(in.URL, "/"), Zone: in.Zone, Tags: in.Tags,
		CapacityBytes: in.CapacityBytes, StoreID: in.StoreID, BootID: in.BootID,
	}, &incarnation))
	if err != nil {
		return err
	}
	c.log.Info().Str("node", in.Node).Str("url", in.URL).Int64("incarnation", incarnation).Msg("node registered")
	return httpx.WriteJSON(w, http.StatusOK, api.Registered{
		ClusterID: res.Image.Cluster().ID, Incarnation: incarnation,
		Leader: c.url, Epoch: res.Image.Epoch(), HighWatermark: res.Image.Next(),
	})
}

// checkNodeURL refuses a URL that is not plainly the node's own: other nodes
// and readers will be sent there.
func (c *Controller) checkNodeURL(raw, remote string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return httpx.Errorf(http.StatusBadRequest, api.CodeInvalidRequest, "url %q is not an http URL without a path", httpx.OneLine(raw))
	}
	host := u.Hostname()
	if slices.Contains(c.cfg.NodeHosts, host) || isOwnHost(host, remote) {
		return nil
	}
	return httpx.Errorf(http.StatusForbidden, api.CodeURLNotAllowed,
		"url %q is not of the host that registers it (%s) nor of one that the controller allows (--node-hosts)", httpx.OneLine(raw), remote)
}

// isOwnHost reports whether host is the address that the connection came from.
func isOwnHost(host, remote string) bool {
	from, err := netip.ParseAddrPort(remote)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return from.Addr().Unmap().IsLoopback()
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	ip, peer := ip.Unmap(), from.Addr().Unmap()
	return ip == peer || ip.IsLoopback() && peer.IsLoopback()
}

var errNoNode = httpx.Errorf(http.StatusBadRequest, api.CodeInvalidRequest, "node is missing")

func (c *Controller) heartbeat(w http.ResponseWriter, r *http.Request) error {
	var in api.Heartbeat
	if err := httpx.ReadJSON(r, maxBody, &in); err != nil {
		return err
	}
	if in.Node == "" {
		return errNoNode
	}
	a, err := c.shell.heartbeat(r.Context(), in)
	if err != nil {
		return err
	}
	if a.Refuse != "" {
		return a.Refuse.http(in.Node)
	}
	return httpx.WriteJSON(w, http.StatusOK, a.Answer)
}

func (c *Controller) locations(w http.ResponseWriter, r *http.Request) error {
	var in meta.LocationReport
	if err := httpx.ReadJSON(r, maxReportBody, &in); err != nil {
		return err
	}
	if in.Node == "" {
		return errNoNode
	}
	a, err := c.shell.located(r.Context(), in)
	if err != nil {
		return err
	}
	if a.Refuse != "" {
		return a.Refuse.http(in.Node)
	}
	return httpx.WriteJSON(w, http.StatusOK, a.Verdicts)
}

// http is how a refusal is answered.
func (r Refusal) http(node string) error {
	switch r {
	case RefuseNotLeader:
		return ErrNotLeading
	case RefuseStaleIncarnation:
		return httpx.Errorf(http.StatusConflict, api.CodeStaleIncarnation, "node %s has another incarnation or store by now; register again", httpx.OneLine(node))
	}
	return httpx.Errorf(http.StatusServiceUnavailable, "OUTCOME_UNKNOWN", "the change may or may not have been made; report again")
}

func (c *Controller) listNodes(w http.ResponseWriter, r *http.Request) error {
	im, err := c.image()
	if err != nil {
		return err
	}
	seen, err := c.shell.look(r.Context())
	if err != nil {
		return err
	}
	page, err := httpx.Page(r, im.Nodes(), func(n *meta.Node) string { return n.ID })
	if err != nil {
		return err
	}
	out := httpx.List[api.NodeView]{Items: []api.NodeView{}, Next: page.Next}
	partitions := partitionsOf(im)
	for _, n := range page.Items {
		out.Items = append(out.Items, nodeView(im, n, seen[n.ID], partitions))
	}
	return httpx.WriteJSON(w, http.StatusOK, out)
}
