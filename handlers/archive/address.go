package archive

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// ErrAway reports that an archive does not answer now. It may later.
var ErrAway = errors.New("the archive does not answer")

// want says what addresses look like.
const want = "want file:///FOLDER or s3://BUCKET/PREFIX?region=REGION&endpoint=HOST"

// Open makes the archive at an address: file:///FOLDER, or s3://BUCKET/PREFIX with the parameters region and endpoint. It asks
// nothing of a server. See [Archive.Check].
func Open(address, format string) (*Archive, error) {
	f := slices.IndexFunc(Formats(), func(f Format) bool { return f.Name == format })
	if f < 0 {
		return nil, fmt.Errorf("want the format jsonl or parquet, have %q", format)
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("%s, have what is no address", want) // the error would show a password
	}
	a := &Archive{address: address, format: Formats()[f]}
	switch {
	case u.User != nil:
		return nil, errors.New("want no name and no password in the address: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment")
	case u.Fragment != "":
		return nil, fmt.Errorf("%s, have one with #%s", want, u.Fragment)
	case u.Scheme == "file":
		a.at, err = openFolder(u)
	case u.Scheme == "s3":
		a.at, err = openBucket(u)
	default:
		return nil, fmt.Errorf("%s, have %q", want, address)
	}
	return a, err
}

func openFolder(u *url.URL) (place, error) {
	path := filepath.FromSlash(u.Path)
	if u.Host != "" || u.RawQuery != "" || !filepath.IsAbs(path) {
		return nil, fmt.Errorf("want an absolute folder such as file:///var/lib/archive, have %q", u)
	}
	return &folder{filepath.Clean(path)}, nil
}

func openBucket(u *url.URL) (place, error) {
	b := &bucket{name: u.Host, prefix: strings.Trim(u.Path, "/"), secure: true}
	if err := s3utils.CheckValidBucketName(b.name); err != nil {
		return nil, fmt.Errorf("%s, have the bucket %q: %w", want, b.name, err)
	}
	if b.prefix != "" {
		b.prefix += "/"
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", want, err)
	}
	for name, values := range query {
		switch value := values[len(values)-1]; {
		case len(values) > 1:
			return nil, fmt.Errorf("want %s once", name)
		case name == "region":
			b.region = value
		case name == "endpoint":
			host, plain := strings.CutPrefix(value, "http://")
			b.endpoint, b.secure = strings.TrimSuffix(strings.TrimPrefix(host, "https://"), "/"), !plain
			if b.endpoint == "" || strings.ContainsAny(b.endpoint, "/@?") {
				return nil, fmt.Errorf("want an endpoint such as minio.example:9000, or http://127.0.0.1:9000 without TLS, have %q", value)
			}
		default:
			return nil, fmt.Errorf("want the parameters region and endpoint, have %q", name)
		}
	}
	if b.region == "" {
		b.region = os.Getenv("AWS_REGION")
	}
	if b.region == "" {
		b.region = os.Getenv("AWS_DEFAULT_REGION")
	}
	if b.region == "" && b.endpoint != "" {
		b.region = "us-east-1" // servers other than those of AWS usually have only this one
	}
	if b.endpoint == "" {
		b.endpoint = "s3.amazonaws.com"
	}
	return b, b.open()
}
