package zkmeta

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shoalstore/shoal/zkmeta/zktest"
)

// certificate makes one for a server at 127.0.0.1, with its key, in the form that
// ZooKeeper reads.
func certificate(t *testing.T) (file string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "zk"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	file = filepath.Join(t.TempDir(), "server.pem")
	if err := os.WriteFile(file, append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), cert...), 0o600); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return file, pool
}

// TestTLS with the real server, which takes both on one port here, as its harness
// speaks plaintext.
func TestTLS(t *testing.T) {
	zktest.Required(t)
	// The manifest of Debian's zookeeper.jar leaves out one that Netty needs.
	const jars = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar:/usr/share/java/netty-codec.jar"
	for jar := range strings.SplitSeq(jars, ":") {
		if _, err := os.Stat(jar); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("ZooKeeper cannot speak TLS here: %v", err)
			}
			t.Skipf("ZooKeeper cannot speak TLS here: %v", err)
		}
	}
	file, pool := certificate(t)
	s := startServer(t, zktest.WithConfig("client.portUnification=true", "ssl.clientAuth=none"),
		zktest.WithJava("-cp", jars, "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
			"-Dzookeeper.ssl.keyStore.location="+file, "-Dzookeeper.ssl.keyStore.type=PEM",
			"-Dzookeeper.ssl.trustStore.location="+file, "-Dzookeeper.ssl.trustStore.type=PEM"))
	with := func(config *tls.Config) func(*ConnConfig) {
		return func(cfg *ConnConfig) { cfg.TLS = config }
	}
	config := &tls.Config{RootCAs: pool}
	c := dialTo(t, with(config), s.Addr())
	try(t, func() error { return c.Create(t.Context(), "/a", make([]byte, 100_000)) })
	if _, ok := c.link.wire.Conn.(*tls.Conn); !ok {
		t.Errorf("the connection is a %T", c.link.wire.Conn)
	}
	if config.ServerName != "" {
		t.Error("the caller's config was changed")
	}
	for name, config := range map[string]*tls.Config{
		"a certificate that nobody trusts":    {},
		"a certificate for another than this": {RootCAs: pool, ServerName: "zk.example"},
	} {
		c := dialTo(t, func(cfg *ConnConfig) { short(cfg); cfg.TLS = config }, s.Addr())
		for told := false; !told; { // a call may end before the handshake has come so far
			_, _, err := c.Get(t.Context(), "/a")
			if !errors.Is(err, ErrNoAnswer) {
				t.Fatalf("%s: %v", name, err)
			}
			told = strings.Contains(err.Error(), "x509")
		}
	}
}
