// Package s3test runs a real S3 server for tests, and puts faults between it and
// its clients.
//
// It owns the server's process, port and files (gateway.go; the server is
// internal/s3gateway, built by build.go from its module), and Proxy (proxy.go),
// which knows which S3 operation a request is and fails those that a test
// chooses: before the server acts, after it has acted, or in the middle of a
// body. It does not own a client: tests bring theirs.
//
// Everything listens on 127.0.0.1. A gateway that was killed comes back to its
// own port and files. No gateway outlives its test's process: it ends when its
// standard input closes.
//
// Start at Start in gateway.go, then NewProxy.
package s3test
