package deepstore_test

import (
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/deepstore/deepstoretest"
)

// lister is as much of S3 as lists objects and uploads, of one to a page. Encodes is
// whether it knows encoding-type. Like S3 it writes keys as they are else, which are no
// XML if they have control characters.
type lister struct {
	encodes bool
	keys    []string
	aborted []string
}

func (l *lister) start(t *testing.T, uri string) deepstore.Store {
	server := httptest.NewServer(l)
	t.Cleanup(server.Close)
	s, err := deepstore.NewS3(uri, deepstore.S3Config{Endpoint: server.URL, Credentials: credentials.NewStaticCredentialsProvider("id", "secret", "")})
	must(t, err)
	return s
}

func (l *lister) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if r.Method == http.MethodDelete {
		l.aborted = append(l.aborted, strings.TrimPrefix(r.URL.Path, "/bucket/"))
		w.WriteHeader(http.StatusNoContent)
		return
	}
	encoding := ""
	shown := func(key string) string {
		var b strings.Builder
		xml.EscapeText(&b, []byte(key))
		if strings.ContainsRune(key, '\b') {
			return strings.ReplaceAll(key, "\b", "&#x8;")
		}
		return b.String()
	}
	if l.encodes && q.Get("encoding-type") == "url" {
		encoding, shown = "<EncodingType>url</EncodingType>", func(key string) string { return strings.ReplaceAll(url.QueryEscape(key), "%2F", "/") }
	}
	uploads := q.Has("uploads")
	after := q.Get("key-marker")
	if token, err := hex.DecodeString(q.Get("continuation-token")); err == nil && len(token) > 0 {
		after = string(token)
	}
	next := 0
	for next < len(l.keys) && after != "" && l.keys[next] <= after {
		next++
	}
	more := next < len(l.keys)-1
	key := ""
	if next < len(l.keys) {
		key = l.keys[next]
	}
	if uploads {
		fmt.Fprintf(w, `<ListMultipartUploadsResult>%s<IsTruncated>%v</IsTruncated><NextKeyMarker>%s</NextKeyMarker><NextUploadIdMarker>u</NextUploadIdMarker>
			<Upload><Key>%s</Key><UploadId>u</UploadId><Initiated>2020-01-01T00:00:00Z</Initiated></Upload></ListMultipartUploadsResult>`,
			encoding, more, shown(key), shown(key))
		return
	}
	fmt.Fprintf(w, `<ListBucketResult>%s<IsTruncated>%v</IsTruncated><NextContinuationToken>%x</NextContinuationToken>
		<Contents><Key>%s</Key><Size>7</Size><LastModified>2020-01-01T00:00:00Z</LastModified></Contents></ListBucketResult>`,
		encoding, more, key, shown(key))
}

// Others keep objects in the bucket, too, and S3 takes names for them that no XML can
// have. One of those is not the end of all listings.
func TestS3ListsBesideNamesThatNoXMLHas(t *testing.T) {
	bareEnvironment(t)
	const prefix = "of=some(one)'s/!x"
	a, b := deepstoretest.NewObject(t, "flights", 1, 10), deepstoretest.NewObject(t, "flights", 2, 10)
	for _, encodes := range []bool{true, false} {
		l := &lister{encodes: encodes, keys: []string{prefix + "/flights/0/a\b + %41", prefix + "/" + a.Key, prefix + "/" + b.Key}}
		if !encodes {
			l.keys[0] = prefix + "/flights/0/a + %41"
		}
		s := l.start(t, "s3://bucket/"+prefix)
		list, err := s.List(t.Context(), "flights/", "", 10)
		if err != nil || len(list) != 2 || list[0].Key != a.Key || list[1].Key != b.Key {
			t.Errorf("encodes %v: %v, %v", encodes, list, err)
		}
		swept, err := s.(deepstore.Sweeper).Sweep(t.Context(), time.Hour)
		if err != nil || swept != 2 || len(l.aborted) != 2 || l.aborted[1] != prefix+"/"+b.Key {
			t.Errorf("encodes %v: %d swept, %q, %v", encodes, swept, l.aborted, err)
		}
	}
}

// An answer that sends on to itself has no end.
func TestS3ListingsThatDoNotGoOn(t *testing.T) {
	bareEnvironment(t)
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked > 10 {
			t.Error("it is asked for ever")
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, `<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken></ListBucketResult>`)
	}))
	t.Cleanup(server.Close)
	s, err := deepstore.NewS3("s3://bucket/p", deepstore.S3Config{Endpoint: server.URL, Credentials: credentials.NewStaticCredentialsProvider("id", "secret", "")})
	must(t, err)
	if _, err := s.List(t.Context(), "", "", 10); err == nil || asked > 3 {
		t.Errorf("asked %d times: %v", asked, err)
	}
}
