package outbound

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// TLSConfig returns how connections of add-ons are encrypted. The texts are in PEM: the certificates that sign that of the server, empty
// for those of the system, and the certificate that the node shows, with its key, both empty for none.
func TLSConfig(ca, certificate, key string) (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM([]byte(ca)) {
			return nil, errors.New("tls.ca: the secret holds no certificate in PEM")
		}
	}
	if certificate != "" {
		pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
		if err != nil {
			return nil, fmt.Errorf("tls: the certificate and its key: %w", err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}
