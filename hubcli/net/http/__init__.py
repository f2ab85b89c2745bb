"""Files and small documents by HTTP: sessions, resumed downloads, credentials, certificates, proxies."""
