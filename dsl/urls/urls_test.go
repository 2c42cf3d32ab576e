package urls_test

import (
	"strings"
	"testing"

	"procaas/dsl/urls"
)

func TestParseBase(t *testing.T) {
	for text, want := range map[string]string{
		"http://127.0.0.1:9081":               "",
		"https://orders.example.com./api":     "",
		"http://[::1]:9081":                   "",
		"http://bücher.example.com":           "",
		"":                                    `is not an absolute http or https URL: ""`,
		"127.0.0.1:9081":                      `is not an absolute http or https URL: "127.0.0.1:9081"`,
		"ftp://orders.example.com":            `is not an absolute http or https URL: "ftp://orders.example.com"`,
		"ftp://user:canary@orders":            `is not an absolute http or https URL: "…"`,
		"http://:8080":                        `is not an absolute http or https URL: "http://:8080"`,
		"http://orders:port":                  `is not an absolute http or https URL: "http://orders:port"`,
		"http://orders:70000":                 "has the port 70000: want a number from 1 to 65535",
		"http://orders:0":                     "has the port 0: want a number from 1 to 65535",
		"http://a..b":                         `has an invalid host "a..b": its dots have nothing between them`,
		"http://<host>/":                      `has an invalid host "<host>": '<' cannot stand in the name of a host`,
		"http://-orders-":                     `has an invalid host "-orders-": no part of the name of a host begins or ends with a hyphen`,
		"http://" + strings.Repeat("a", 64):   "has a host with a part of more than 63 bytes",
		"http://" + strings.Repeat("a.", 130): "has a host of more than 253 bytes",
		"http://user:canary@orders":           "holds a password",
		"http://orders?x=1":                   "has a query or a fragment",
		"http://orders?":                      "has a query or a fragment",
		"http://orders#top":                   "has a query or a fragment",
	} {
		have := ""
		if _, err := urls.ParseBase(text); err != nil {
			have = err.Error()
		}
		if have != want {
			t.Errorf("ParseBase(%q): want %q, have %q", text, want, have)
		}
	}
}

func TestIsThisMachine(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST.": true, "orders.localhost": true, "127.0.0.1": true, "127.8.0.1": true, "::1": true,
		"::ffff:127.0.0.1": true, "": false, "localhost.example.com": false, "10.0.0.1": false, "orders": false,
	} {
		if have := urls.IsThisMachine(host); have != want {
			t.Errorf("IsThisMachine(%q): want %v, have %v", host, want, have)
		}
	}
}

func TestOnlyThisMachine(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:8080": true, "127.9.9.9:1": true, "[::1]:8080": true, "localhost:80": true, "LOCALHOST.:80": true,
		"[::ffff:127.0.0.1]:80": true,
		":8080":                 false, "0.0.0.0:8080": false, "[::]:80": false, "10.0.0.1:80": false, "example.org:80": false,
		"127.0.0.1": false,
		"127.1:80":  false, "": false,
		"localhost.example.org:80": false,
	} {
		if have := urls.OnlyThisMachine(addr); have != want {
			t.Errorf("OnlyThisMachine(%q): have %v, want %v", addr, have, want)
		}
	}
}
