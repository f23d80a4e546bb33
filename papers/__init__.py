"""What a reader of the papers needs: analyses, baselines, scripts, result pages and tests, a folder a paper."""
