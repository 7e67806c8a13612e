package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// serverCredentials are plain text without files, or else TLS: a certificate, its key, and the authority of client certificates.
func serverCredentials(files []string) (credentials.TransportCredentials, error) {
	if len(files) == 0 {
		return insecure.NewCredentials(), nil
	}
	pair, err := tls.LoadX509KeyPair(files[0], files[1])
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}}
	if len(files) > 2 {
		pem, err := os.ReadFile(files[2])
		if err != nil {
			return nil, err
		}
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: no certificates", files[2])
		}
	}
	return credentials.NewTLS(config), nil
}

// clientNames are those in the client's certificate, if it has one.
func clientNames(ctx context.Context) (string, bool) {
	from, _ := peer.FromContext(ctx)
	if from == nil {
		return "", false
	}
	info, _ := from.AuthInfo.(credentials.TLSInfo)
	if len(info.State.PeerCertificates) == 0 {
		return "", false
	}
	leaf := info.State.PeerCertificates[0]
	names := slices.Concat(leaf.DNSNames, leaf.EmailAddresses)
	for _, uri := range leaf.URIs {
		names = append(names, uri.String())
	}
	slices.Sort(names)
	return strings.Join(names, ","), true
}
