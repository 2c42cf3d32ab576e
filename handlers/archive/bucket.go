package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// A bucket has the files of an archive as objects, on a server that speaks the protocol of S3.
type bucket struct {
	name, prefix     string // the prefix ends with a slash, or is empty
	endpoint, region string
	secure           bool

	client *minio.Client
	creds  *credentials.Credentials
}

// tries is how often one call is made. What fails after that is tried again later.
const tries = 3

// credentialTime bounds how long the machine is asked for credentials of its role.
const credentialTime = 5 * time.Second

// open makes the client. Credentials are those of the environment, of the shared file of AWS, or of the role of the machine.
func (b *bucket) open() (err error) {
	b.creds = credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
	})
	b.client, err = minio.New(b.endpoint, &minio.Options{Creds: b.creds, Secure: b.secure, Region: b.region, MaxRetries: tries})
	return err
}

// check implements [place].
func (b *bucket) check(ctx context.Context) error {
	keys, err := b.creds.GetWithContext(&credentials.CredContext{Client: &http.Client{Timeout: credentialTime}})
	if err != nil || keys.AccessKeyID == "" {
		return errors.New("want credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or give the machine a role")
	}
	there, err := b.client.BucketExists(ctx, b.name)
	switch {
	case err != nil:
		return b.explain(err)
	case !there:
		return fmt.Errorf("%s has no bucket %s: make it, or correct the name", b.endpoint, b.name)
	}
	return nil
}

// put implements [place].
func (b *bucket) put(ctx context.Context, name string, data []byte, contentType string) error {
	_, err := b.client.PutObject(ctx, b.name, b.prefix+name, bytes.NewReader(data), int64(len(data)), minio.PutObjectOptions{
		ContentType: contentType, DisableMultipart: true, SendContentMd5: true, // buckets with locks want the sum
	})
	return b.explain(err)
}

// explain says what an error means. That of a server that is away may pass.
func (b *bucket) explain(err error) error {
	if err == nil {
		return nil
	}
	answer := minio.ToErrorResponse(err)
	unknown := (*net.DNSError)(nil)
	switch {
	case errors.As(err, &unknown) && unknown.IsNotFound:
		return fmt.Errorf("there is no host %s: %w", b.endpoint, err)
	case answer.StatusCode == http.StatusForbidden || answer.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%s refuses the credentials for bucket %s, which need s3:ListBucket and s3:PutObject: %w", b.endpoint, b.name, err)
	case answer.StatusCode >= 400 && answer.StatusCode < 500 && answer.StatusCode != http.StatusTooManyRequests &&
		answer.StatusCode != http.StatusRequestTimeout:
		return fmt.Errorf("%s refuses bucket %s: %w", b.endpoint, b.name, err)
	}
	return fmt.Errorf("%w: %w", ErrAway, err)
}
