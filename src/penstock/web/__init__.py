"""The dashboard: one page that shows a running application in the browser.

It is served beside the REST interface of `penstock.queries.http`, with its token and limits.
"""
