package s3test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// serve answers one request, with its fault.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	f := p.take(r)
	if !f.wait(r.Context()) {
		panic(http.ErrAbortHandler)
	}
	if (f.Status != 0 || f.Cut) && !f.After {
		io.Copy(io.Discard, r.Body) // who sends a body reads no answer before its end
		f.refuse(w, r)
		return
	}
	answer, err := p.pass(r, f)
	if err != nil {
		panic(http.ErrAbortHandler) // the server is away: to the client the connection breaks
	}
	defer answer.Body.Close()
	if !held(r.Context(), f.HoldAnswer) {
		panic(http.ErrAbortHandler)
	}
	if f.Status != 0 || f.Cut {
		io.Copy(io.Discard, answer.Body)
		f.refuse(w, r)
		return
	}
	f.answer(w, r, answer)
}

// pass has the server act on the request.
func (p *Proxy) pass(r *http.Request, f Fault) (*http.Response, error) {
	body := r.Body
	if f.FlipRequest || f.Again {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		if f.FlipRequest {
			flip(data)
		}
		body = io.NopCloser(bytes.NewReader(data))
		if f.Again {
			p.keep(r, data)
		}
	}
	return p.client.RoundTrip(p.request(r.Context(), r, body))
}

func (p *Proxy) request(ctx context.Context, r *http.Request, body io.ReadCloser) *http.Request {
	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host = "http", p.target
	out.RequestURI = ""
	out.Body = body // and Host stays as it was: it is signed
	if r.ContentLength == 0 {
		out.Body = http.NoBody
	}
	for _, name := range []string{"Connection", "Expect", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade"} {
		out.Header.Del(name)
	}
	return out
}

// keep remembers a request for Repeat.
func (p *Proxy) keep(r *http.Request, data []byte) {
	again := func() int {
		answer, err := p.client.RoundTrip(p.request(context.Background(), r, io.NopCloser(bytes.NewReader(data))))
		if err != nil {
			return 0
		}
		defer answer.Body.Close()
		io.Copy(io.Discard, answer.Body)
		return answer.StatusCode
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.repeats = append(p.repeats, again)
}

// refuse is the answer that is not the server's.
func (f Fault) refuse(w http.ResponseWriter, r *http.Request) {
	if f.Cut {
		panic(http.ErrAbortHandler)
	}
	for name, values := range f.Header {
		w.Header()[name] = values
	}
	code := f.Code
	if code == "" {
		code = strings.ReplaceAll(http.StatusText(f.Status), " ", "")
	}
	body := fmt.Sprintf("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code><Message>the proxy of the test says so</Message><RequestId>0</RequestId></Error>", code)
	w.Header().Set("Content-Type", "application/xml")
	if r.Method != http.MethodHead {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(f.Status)
	if r.Method != http.MethodHead {
		io.WriteString(w, body)
	}
}

// answer passes the server's answer on.
func (f Fault) answer(w http.ResponseWriter, r *http.Request, answer *http.Response) {
	head := w.Header()
	for name, values := range answer.Header {
		head[name] = values
	}
	for name, values := range f.Header {
		head[name] = values
	}
	head.Del("Connection")
	if f.Unranged {
		head.Del("Content-Range")
		answer.StatusCode = http.StatusOK
	}
	if !f.FlipAnswer && !f.CutAnswer && !f.ShortAnswer || r.Method == http.MethodHead {
		w.WriteHeader(answer.StatusCode)
		io.Copy(w, answer.Body)
		return
	}
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if f.FlipAnswer {
		flip(data)
	}
	half := data[:len(data)/2]
	switch {
	case f.ShortAnswer:
		head.Set("Content-Length", strconv.Itoa(len(half)))
		w.WriteHeader(answer.StatusCode)
		w.Write(half)
	case f.CutAnswer:
		head.Set("Content-Length", strconv.Itoa(len(data)))
		w.WriteHeader(answer.StatusCode)
		w.Write(half)
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	default:
		w.WriteHeader(answer.StatusCode)
		w.Write(data)
	}
}

func flip(data []byte) {
	if len(data) > 0 {
		data[len(data)/2] ^= 1
	}
}

// operation names what a request asks for, path style.
func operation(r *http.Request) (op, key string) {
	_, key, object := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	object = object && key != ""
	query := r.URL.Query()
	switch {
	case !object && r.Method == http.MethodHead:
		return "HeadBucket", ""
	case !object && r.Method == http.MethodPut:
		return "CreateBucket", ""
	case !object && query.Has("uploads"):
		return "ListMultipartUploads", ""
	case !object:
		return "ListObjectsV2", ""
	}
	upload := query.Has("uploadId")
	switch r.Method {
	case http.MethodHead:
		return "HeadObject", key
	case http.MethodGet:
		return "GetObject", key
	case http.MethodPut:
		if upload {
			return "UploadPart", key
		}
		return "PutObject", key
	case http.MethodDelete:
		if upload {
			return "AbortMultipartUpload", key
		}
		return "DeleteObject", key
	}
	if upload {
		return "CompleteMultipartUpload", key
	}
	return "CreateMultipartUpload", key
}
