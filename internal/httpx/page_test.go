package httpx_test

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/internal/httpx"
)

func key(s string) string { return s }

func pageOf(items []string, query string) (httpx.List[string], error) {
	return httpx.Page(httptest.NewRequest("GET", "/?"+query, nil), slices.Values(items), key)
}

// TestPagesTogetherAreTheList: every item once, whatever the page size, the
// empty key included.
func TestPagesTogetherAreTheList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := rapid.SliceOfNDistinct(rapid.String(), 0, 30, rapid.ID[string]).Draw(t, "items")
		slices.Sort(items)
		limit := rapid.IntRange(1, 12).Draw(t, "limit")
		var got []string
		query := fmt.Sprintf("limit=%d", limit)
		for pages := 0; ; pages++ {
			page, err := pageOf(items, query)
			if err != nil || len(page.Items) > limit || pages > len(items) {
				t.Fatalf("page %d: %d items, %v", pages, len(page.Items), err)
			}
			got = append(got, page.Items...)
			if len(got) == len(items) {
				if page.Next != "" {
					t.Fatalf("the last page says that %q follows", page.Next)
				}
				break
			}
			query = fmt.Sprintf("limit=%d&after=%s", limit, url.QueryEscape(page.Next))
		}
		if !slices.Equal(got, items) {
			t.Fatalf("got %q, want %q", got, items)
		}
	})
}

func TestPageWhoseLastItemIsGone(t *testing.T) {
	page, err := pageOf([]string{"a", "c", "d"}, "after=b&limit=1")
	must(t, err)
	if !slices.Equal(page.Items, []string{"c"}) || page.Next != "c" {
		t.Fatalf("got %+v", page)
	}
}

func TestPageDefaults(t *testing.T) {
	var many []string
	for i := range 150 {
		many = append(many, fmt.Sprintf("%03d", i))
	}
	page, err := pageOf(many, "")
	must(t, err)
	if len(page.Items) != httpx.DefaultLimit || page.Next != "099" {
		t.Fatalf("%d items, next %q", len(page.Items), page.Next)
	}
	page, err = pageOf(nil, "")
	must(t, err)
	if page.Items == nil {
		t.Fatal("an empty page is null in JSON")
	}
}

func TestBadLimits(t *testing.T) {
	for _, limit := range []string{"0", "-1", "1001", "x", "1.5", "99999999999999999999"} {
		_, err := pageOf(nil, "limit="+limit)
		if e, ok := errors.AsType[*httpx.Error](err); !ok || e.Status != 400 || e.Code != "INVALID_REQUEST" {
			t.Errorf("limit=%s: %v", limit, err)
		}
	}
}
