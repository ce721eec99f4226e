package cmdline

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/shoalstore/shoal/zkmeta"
)

// ZooKeeper are the settings of whoever talks to ZooKeeper. Embed it with the prefix
// "zookeeper-".
type ZooKeeper struct {
	Timeout      time.Duration `help:"Session timeout: who is silent for so long is given up. The servers bound it." placeholder:"DURATION" default:"10s" env:"SHOAL_ZOOKEEPER_TIMEOUT"`
	User         string        `help:"User for digest authentication; needs --zookeeper-password-file." placeholder:"USER" env:"SHOAL_ZOOKEEPER_USER"`
	PasswordFile string        `help:"File with the password of --zookeeper-user." placeholder:"FILE" env:"SHOAL_ZOOKEEPER_PASSWORD_FILE"`
	TLS          bool          `name:"tls" help:"Reach ZooKeeper by TLS." env:"SHOAL_ZOOKEEPER_TLS"`
	CAFile       string        `name:"ca-file" help:"File with the certificates, in PEM, that ZooKeeper's are checked against; the system's unless given. Implies TLS." placeholder:"FILE" env:"SHOAL_ZOOKEEPER_CA_FILE"`
	CertFile     string        `help:"File with this process's certificate, in PEM. Implies TLS." placeholder:"FILE" env:"SHOAL_ZOOKEEPER_CERT_FILE"`
	KeyFile      string        `help:"File with the key of that certificate, in PEM." placeholder:"FILE" env:"SHOAL_ZOOKEEPER_KEY_FILE"`
}

// Access reads the files that the settings name.
func (z ZooKeeper) Access() (a zkmeta.Access, err error) {
	a = zkmeta.Access{SessionTimeout: z.Timeout, User: z.User}
	if a.Password, err = readSecret("ZooKeeper password", z.PasswordFile); err != nil {
		return a, err
	}
	if z.TLS || z.CAFile != "" || z.CertFile != "" {
		a.TLS, err = z.tls()
	}
	return a, err
}

func (z ZooKeeper) tls() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if z.CAFile != "" {
		pem, err := os.ReadFile(z.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ZooKeeper CA: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ZooKeeper CA: no certificate in %s", z.CAFile)
		}
	}
	if (z.CertFile == "") != (z.KeyFile == "") {
		return nil, errors.New("ZooKeeper certificate: the certificate's file and the key's belong together")
	}
	if z.CertFile != "" {
		own, err := tls.LoadX509KeyPair(z.CertFile, z.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("ZooKeeper certificate: %w", err)
		}
		cfg.Certificates = []tls.Certificate{own}
	}
	return cfg, nil
}
