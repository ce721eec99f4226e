package api

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"github.com/shoalstore/shoal/internal/httpx"
)

// List reads all pages of a list from the leader. path may have a query.
func List[T any](ctx context.Context, c *Client, path string) ([]T, error) {
	return pages[T](path, func(p string, out any) error { return c.Get(ctx, p, out) })
}

// ListAt reads all pages of a list of one server, a node's; url may have a query.
func ListAt[T any](ctx context.Context, c *httpx.Client, url string) ([]T, error) {
	return pages[T](url, func(u string, out any) error { return c.GetJSON(ctx, u, out) })
}

func pages[T any](path string, get func(path string, out any) error) ([]T, error) {
	sep := "?"
	if strings.Contains(path, "?") {
		sep = "&"
	}
	all := []T{}
	for after := ""; ; {
		page := path + sep + "limit=" + strconv.Itoa(httpx.MaxLimit)
		if after != "" {
			page += "&after=" + url.QueryEscape(after)
		}
		var got httpx.List[T]
		if err := get(page, &got); err != nil {
			return nil, err
		}
		all = append(all, got.Items...)
		if got.Next == "" {
			return all, nil
		}
		after = got.Next
	}
}

// TablePath is the path of a table; parts that follow are escaped and appended.
func TablePath(table string, parts ...string) string { return join("/tables", table, parts) }

// SegmentPath is the path of a segment, on a controller and on a node.
func SegmentPath(table string, parts ...string) string { return join("/segments", table, parts) }

// NodePath is the path of a node on a controller.
func NodePath(node string, parts ...string) string { return join("/nodes", node, parts) }

func join(root, first string, parts []string) string {
	path := root + "/" + url.PathEscape(first)
	for _, p := range parts {
		path += "/" + url.PathEscape(p)
	}
	return path
}
