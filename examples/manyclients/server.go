package main

import (
	"net/url"
	"os"

	"go.etcd.io/etcd/server/v3/embed"
)

// maxOps is how many operations a transaction may have: etcd's default of 128 is for few tasks.
const maxOps = 8192

// server is a server of etcd in this process.
type server struct {
	etcd    *embed.Etcd
	dir     string
	address string
}

func startServer() (*server, error) {
	dir, err := os.MkdirTemp("", "manyclients-")
	if err != nil {
		return nil, err
	}
	c := embed.NewConfig()
	c.Dir, c.LogLevel, c.MaxTxnOps = dir, "panic", maxOps
	c.AutoCompactionMode, c.AutoCompactionRetention = embed.CompactorModeRevision, "10000"
	free := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}} // any port
	c.ListenClientUrls, c.AdvertiseClientUrls = free, free
	c.ListenPeerUrls, c.AdvertisePeerUrls = free, free
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	e, err := embed.StartEtcd(c)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	<-e.Server.ReadyNotify()
	return &server{e, dir, e.Clients[0].Addr().String()}, nil
}

func (s *server) stop() {
	s.etcd.Close()
	_ = os.RemoveAll(s.dir)
}
