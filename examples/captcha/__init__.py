"""Captcha: browsers with many actions are asked for a captcha, unless they have solved one."""
